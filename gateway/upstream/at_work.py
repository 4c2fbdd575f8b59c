"""What an engine says that it works on at one moment, held against the calls of ours that it may work on. Pure.

Nothing is assumed: work that our own open calls explain for sure confirms that a left one has stopped, work beyond all that they can explain says that it
has not, and what lies between can't be told apart. Only calls that ask for as much output as the left one are compared, where the engine tells that much.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.engines.engine import Engine
from gateway.upstream.helper_answer import parsed


class Found(StrEnum):
    """What became known of the engine's work for a call that was left."""

    STOPPED = "stopped"
    AT_WORK = "still_at_work"
    """The engine works on more than all open calls can explain."""
    ONE_OF_SEVERAL = "cannot_be_told_apart"
    """Open calls may explain the work, or may not."""
    MAY_LAG = "number_may_be_an_old_one"
    """Work beyond all that open calls explain, by an engine whose number lags."""
    CANNOT_BE_ASKED = "engine_cannot_be_asked"
    """It has no way, or that way is switched off."""
    NO_ANSWER = "engine_did_not_answer"
    NOT_ASKED = "not_asked"
    """The gateway stopped, or too many calls were left at once."""


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of an engine's work."""

    number: int | None = None
    """The engine's own for it, rising; None where it gives none."""
    ceiling: int | None = None
    """The output that was asked for; None where it does not say."""


@dataclass(frozen=True, slots=True)
class Open:
    """A call of ours whose answer is awaited."""

    ceiling: int
    """For each choice, as it was sent."""
    pieces: int
    """The engine may work on so many: one for each choice and prompt."""
    begun: bool
    """It gave content and not yet its end: at least one piece is surely at work."""


def read_work(engine: Engine, answer: bytes) -> tuple[Work, ...] | None:
    """None where the answer tells nothing."""
    return _slots(answer) if engine.work_form == "slots" else _gauges(engine.work_gauges, answer)


def found_of(ceiling: int, left: int, work: Collection[Work], opened: Iterable[Open]) -> Found:
    """`left`: how many pieces of such calls were left at once."""
    comparable = all(one.ceiling is not None for one in work)
    alike = [one for one in opened if not comparable or one.ceiling == ceiling]
    busy = sum(not comparable or one.ceiling == ceiling for one in work)
    surely, possibly = sum(one.begun for one in alike), sum(one.pieces for one in alike)
    if busy <= surely:
        return Found.STOPPED
    return Found.AT_WORK if busy - possibly >= left else Found.ONE_OF_SEVERAL


def _slots(answer: bytes) -> tuple[Work, ...] | None:
    """llama.cpp's list of slots."""
    slots = parsed(answer)
    if not isinstance(slots, list) or not all(isinstance(slot, dict) and isinstance(slot.get("is_processing"), bool) for slot in slots):
        return None
    return tuple(Work(_number(slot.get("id_task")), _ceiling(slot.get("params"))) for slot in slots if slot["is_processing"])


def _ceiling(params: object) -> int | None:
    return _number(params.get("n_predict")) if isinstance(params, dict) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _gauges(names: Collection[str], answer: bytes) -> tuple[Work, ...] | None:
    """Prometheus text: the sum of these gauges over all their labels."""
    found: set[str] = set()
    total = 0.0
    for line in answer.decode("utf-8", "replace").splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in names:
            try:
                total += float(line.rpartition("}")[2].split()[0] if "}" in line else line.split()[1])
            except (IndexError, ValueError):
                return None
            found.add(name)
    return (Work(),) * min(PIECES_MAX, round(total)) if found and 0 <= total < float("inf") else None


PIECES_MAX: Final = 100_000
