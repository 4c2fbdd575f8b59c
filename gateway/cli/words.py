"""How a single value is written: an unknown number is `unknown`, never 0 or blank; a text that is absent is `-`."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Final

UNKNOWN: Final = "unknown"
ABSENT: Final = "-"


class Kind(Enum):
    """What a column holds."""

    TEXT = auto()
    NUMBER = auto()
    """None is unknown."""
    OPTIONAL_NUMBER = auto()
    """None means that there is none: no ceiling, no planned number."""
    TIME = auto()
    """Unix ms."""


NUMERIC: Final = frozenset({Kind.NUMBER, Kind.OPTIONAL_NUMBER})


def written(value: object, kind: Kind, *, separators: bool) -> str:
    """`separators`: thousands apart, for people; scripts get bare digits."""
    match kind:
        case Kind.NUMBER:
            return number(value, UNKNOWN, separators=separators)
        case Kind.OPTIONAL_NUMBER:
            return number(value, ABSENT, separators=separators)
        case Kind.TIME:
            return moment(value)
        case Kind.TEXT:
            return text(value)


def number(value: object, when_none: str, *, separators: bool) -> str:
    if value is None:
        return when_none
    if isinstance(value, int) and not isinstance(value, bool) and separators:
        return f"{value:,}"
    return text(value)


def moment(value: object) -> str:
    """UTC, to the second: `2026-10-03T11:22:33Z`."""
    if not isinstance(value, int):
        return text(value)
    return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def text(value: object) -> str:
    if value is None or value == "":
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(text(item) for item in value) or ABSENT
    if isinstance(value, dict):
        return ", ".join(f"{key} {text(item)}" for key, item in value.items()) or ABSENT
    return printable(str(value))


def printable(string: str) -> str:
    """A task or label comes from others: control and bidirectional characters are shown, not obeyed by the terminal."""
    return "".join(char if unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} else f"\\u{ord(char):04x}" for char in string)
