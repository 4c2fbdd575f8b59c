"""One report of counts, whatever a format calls its numbers.

A number that is none, or negative, makes the report one that can't be believed; a part is clamped to its whole and flagged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway.frozen import frozen

LARGEST: Final = 2**53 - 1
Note = Callable[[str], None]


class NotBelieved(Exception):
    """The report holds a number that can't be one. The text is the anomaly."""


@frozen
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


def number(value: object, name: str) -> int | None:
    if value is None:
        return None
    if value.__class__ is float and value.is_integer():
        value = int(value)
    if value.__class__ is not int:
        raise NotBelieved(f"{name}_not_a_number")
    if not 0 <= value <= LARGEST:
        raise NotBelieved(f"{name}_negative" if value < 0 else f"{name}_impossible")
    return value


def within(part: int | None, whole: int | None, note: Note, anomaly: str) -> int | None:
    if part is None or whole is None or part <= whole:
        return part
    note(anomaly)
    return whole


def inner(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
