"""Looks into JSON of unknown shape: each gives a value of the type that was asked for, or what stands for unknown.

A count that is none (negative, a fraction, beyond 2^53) raises `NotACount`: the reader then says so and takes the usage as unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from gateway.accounting.usage import UNKNOWN_USAGE, Usage
from gateway.errors import RecordProblem
from gateway.reconcile.record import Skipped

MAX_COUNT = 2**53 - 1
MAX_MOMENT_MS = 2**43
"""The year 2248."""
MAX_TEXT = 256
MAX_IDS = 512


class NotACount(Exception):
    """The text names the field and what stood there."""


def at(value: object, *path: str | int) -> object:
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text(value: object, *path: str | int, most: int = MAX_TEXT) -> str:
    """Printable, on one line, cut short; empty where it is no string."""
    found = at(value, *path)
    if not isinstance(found, str):
        return ""
    line = " ".join(found[: 4 * most].split())
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)[:most]


def ident(value: object, *path: str | int) -> str:
    """An id, whole or not at all: half of one would match something else."""
    found = at(value, *path)
    return found if isinstance(found, str) and len(found) <= MAX_TEXT and found.isprintable() and found.strip() == found else ""


def idents(values: Iterable[str]) -> tuple[str, ...]:
    """Each once, in order, without the empty ones."""
    return tuple(dict.fromkeys(value for value in values if value))[:MAX_IDS]


def objects(value: object, *path: str | int) -> list[dict[str, object]]:
    found = at(value, *path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def flag(value: object, *path: str | int) -> bool:
    return at(value, *path) is True


def count(value: object, *path: str | int) -> int | None:
    found = at(value, *path)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= MAX_COUNT:
        raise NotACount(f"{path[-1] if path else 'a count'} is {str(found)[:40]}: no count of tokens")
    return found


def some(value: object, *path: str | int) -> int | None:
    """A count that its agent writes as 0 also where it knows nothing: then unknown."""
    return count(value, *path) or None


def total(*parts: int | None) -> int | None:
    """The sum of what is known; unknown where nothing is."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def believed(source: str, make: Callable[[], Usage]) -> tuple[Usage, list[Skipped]]:
    try:
        usage = make()
    except NotACount as problem:
        return UNKNOWN_USAGE, [Skipped(source=source, why=str(problem))]
    return usage, []


def status(value: object, *path: str | int) -> int | None:
    found = at(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and 100 <= found <= 599 else None


def moment_ms(value: object, *path: str | int, unit_ms: int = 1) -> int | None:
    """From ISO 8601 text (without a zone: UTC), or a number of `unit_ms`."""
    found = at(value, *path)
    try:
        if isinstance(found, str):
            moment = datetime.fromisoformat(found[:40])
            found = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
        elif isinstance(found, int | float) and not isinstance(found, bool):
            found = round(found * unit_ms)
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return found if 0 < found < MAX_MOMENT_MS else None


def known_version(agent: str, found: str, source: str, known: tuple[str, ...]) -> None:
    """`known`: beginnings of version numbers. No version at all is taken as known: the shape must tell."""
    if found and not found.startswith(known):
        raise RecordProblem(
            f"{source}: a record of {agent} of version {found[:40]}, which is not known here. Known: {', '.join(each + '*' for each in known)}. "
            "Convert it to the form gateway-dispatch-1, or use a release that knows it."
        )
