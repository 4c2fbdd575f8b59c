"""Token counts as OpenAI-shaped servers report them: a `usage` object, or llama.cpp's `timings`.

A number that is none, or negative, makes the report one that can't be believed; a part is clamped to its whole and flagged; input 0 is never a fact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

LARGEST: Final = 2**53 - 1
Note = Callable[[str], None]


class NotBelieved(Exception):
    """The report holds a number that can't be one. The text is the anomaly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report. `input_tokens` and `output_tokens` None: not given."""

    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    exact: bool = True
    """False where the report leaves out what is known to be there."""

    @property
    def whole(self) -> bool:
        return self.input_tokens is not None and self.output_tokens is not None


def _number(value: object, name: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise NotBelieved(f"{name}_not_a_number")
    if not 0 <= value <= LARGEST:
        raise NotBelieved(f"{name}_negative" if value < 0 else f"{name}_impossible")
    return value


def _within(part: int | None, whole: int | None, note: Note, anomaly: str) -> int | None:
    if part is None or whole is None or part <= whole:
        return part
    note(anomaly)
    return whole


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def read_usage(usage: Mapping[str, Any], note: Note) -> Report | None:
    """None: the object says nothing (`{}`, all zero), or nothing that can be believed."""
    try:
        given = _number(usage.get("prompt_tokens"), "prompt_tokens") or None
        output = _number(usage.get("completion_tokens"), "completion_tokens")
        inside = _object(usage.get("prompt_tokens_details"))
        cached = _number(inside.get("cached_tokens"), "cached_tokens")
        written = inside.get("cache_write_tokens")
        written = _number(inside.get("created_cache_tokens") if written is None else written, "cache_write_tokens")
        reasoning = _object(usage.get("completion_tokens_details")).get("reasoning_tokens")
        reasoning = _number(usage.get("reasoning_tokens") if reasoning is None else reasoning, "reasoning_tokens")
        total = _number(usage.get("total_tokens"), "total_tokens")
    except NotBelieved as error:
        note(str(error))
        return None
    if given is None and not output:
        return None
    if given is not None and output is not None and total is not None and total != given + output:
        note("total_mismatch")
    return Report(
        input_tokens=given,
        output_tokens=output,
        cached_tokens=_within(cached, given, note, "cached_exceeds_input"),
        cache_write_tokens=_within(written, given, note, "cache_write_exceeds_input"),
        reasoning_tokens=_within(reasoning, output, note, "reasoning_exceeds_output"),
    )


def read_timings(timings: Mapping[str, Any], note: Note) -> Report | None:
    """llama.cpp: `prompt_n` leaves the cached part out; drafts are no output. Old builds don't tell the cached part: then the input is a lower bound."""
    try:
        read = _number(timings.get("prompt_n"), "prompt_n")
        output = _number(timings.get("predicted_n"), "predicted_n")
        cached = _number(timings.get("cache_n"), "cache_n")
    except NotBelieved as error:
        note(str(error))
        return None
    if read is None or output is None or not (read or cached):
        return None
    if cached is None:
        note("timings_without_cache")
    return Report(input_tokens=read + (cached or 0), output_tokens=output, cached_tokens=cached, exact=cached is not None)
