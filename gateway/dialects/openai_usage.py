"""Token counts as OpenAI-shaped servers report them: a `usage` object, or llama.cpp's `timings`.

A number that is none, or negative, makes the report one that can't be believed; a part is clamped to its whole and flagged; input 0 is never a fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.dialects.usage_report import NotBelieved, Note, Report, inner, number, within


def read_usage(usage: Mapping[str, Any], note: Note) -> Report | None:
    """None: the object says nothing (`{}`, all zero), or nothing that can be believed."""
    try:
        given = number(usage.get("prompt_tokens"), "prompt_tokens") or None
        output = number(usage.get("completion_tokens"), "completion_tokens")
        inside = inner(usage.get("prompt_tokens_details"))
        cached = number(inside.get("cached_tokens"), "cached_tokens")
        written = inside.get("cache_write_tokens")
        written = number(inside.get("created_cache_tokens") if written is None else written, "cache_write_tokens")
        reasoning = inner(usage.get("completion_tokens_details")).get("reasoning_tokens")
        reasoning = number(usage.get("reasoning_tokens") if reasoning is None else reasoning, "reasoning_tokens")
        total = number(usage.get("total_tokens"), "total_tokens")
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
        cached_tokens=within(cached, given, note, "cached_exceeds_input"),
        cache_write_tokens=within(written, given, note, "cache_write_exceeds_input"),
        reasoning_tokens=within(reasoning, output, note, "reasoning_exceeds_output"),
    )


def read_timings(timings: Mapping[str, Any], note: Note) -> Report | None:
    """llama.cpp: `prompt_n` leaves the cached part out; drafts are no output. Old builds don't tell the cached part: then the input is a lower bound."""
    try:
        read = number(timings.get("prompt_n"), "prompt_n")
        output = number(timings.get("predicted_n"), "predicted_n")
        cached = number(timings.get("cache_n"), "cache_n")
    except NotBelieved as error:
        note(str(error))
        return None
    if read is None or output is None or not (read or cached):
        return None
    if cached is None:
        note("timings_without_cache")
    return Report(input_tokens=read + (cached or 0), output_tokens=output, cached_tokens=cached, exact=cached is not None)
