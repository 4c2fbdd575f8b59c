"""Whether a row could tell of a call: by time, by what the agent sent to name its session, and by the order of the rows around it. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from gateway.reconcile.ledger_side import LedgerCall
from gateway.reconcile.match import Pair
from gateway.reconcile.record import DispatchRecord

WINDOW_MS: Final = 60_000
"""How far a row's time may lie outside its call's: agents write when they come to it, clocks of two machines differ."""
TIGHT_MS: Final = 2_000
"""Asked only where the wide window leaves a choice."""

Session = tuple[str, str]


def session_of(record: DispatchRecord) -> Session:
    """Rows of one session follow each other."""
    return (record.agent, record.session or record.source.rpartition(":")[0] or record.source)


def moments(record: DispatchRecord) -> tuple[int, ...]:
    return tuple(moment for moment in (record.begun_ms, record.at_ms) if moment is not None)


def in_time(call: LedgerCall, record: DispatchRecord, window_ms: int = WINDOW_MS) -> bool:
    """A row without a time fits any. One that bears its beginning and its end fits where either does: a tool's run may lie between."""
    first = call.admitted_ms - call.waited_ms - window_ms
    last = call.until_ms + window_ms if call.ended_ms is not None else None
    found = moments(record)
    return not found or any(first <= moment and (last is None or moment <= last) for moment in found)


def in_session(call: LedgerCall, record: DispatchRecord) -> bool:
    """Unless both sides name sessions and none in common."""
    return not call.session or not record.session_ids or not call.session.isdisjoint(record.session_ids)


class Anchors:
    """What stands fast already, session by session: a row between two of them tells of a call between theirs."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._places: dict[Session, list[tuple[int, int]]] = {}
        self.shapes: dict[Session, set[tuple[str, bool]]] = {}
        self._runs: dict[Session, set[str]] = {}
        for pair in pairs:
            if isinstance(pair.item, LedgerCall):
                self._places.setdefault(session_of(pair.record), []).append((pair.record.order, pair.item.number))
                self.shapes.setdefault(session_of(pair.record), set()).add((pair.item.model, pair.item.tools))
                self._runs.setdefault(session_of(pair.record), set()).add(pair.item.run_name)
        for places in self._places.values():
            places.sort()

    def gap(self, record: DispatchRecord) -> int:
        """Which of its session's gaps the row stands in."""
        return bisect_left(self._places.get(session_of(record), []), (record.order, -1))

    def bounds(self, session: Session, gap: int) -> tuple[int, int]:
        """Numbers of the calls around it; none where the calls around it stand the other way round: those ran side by side."""
        places = self._places.get(session, [])
        low = places[gap - 1][1] if gap else 0
        high = places[gap][1] if gap < len(places) else 2**62
        return (low, high) if low < high else (0, 2**62)

    def hold(self, session: Session) -> bool:
        """Whether any of its rows stands fast."""
        return session in self._places

    def in_order(self, call: LedgerCall, record: DispatchRecord) -> bool:
        """And in a run of the rows that stand fast, where some do."""
        session = session_of(record)
        low, high = self.bounds(session, self.gap(record))
        return low < call.number < high and call.run_name in self._runs.get(session, (call.run_name,))


def fits(call: LedgerCall, record: DispatchRecord, anchors: Anchors, window_ms: int = WINDOW_MS) -> bool:
    return in_session(call, record) and in_time(call, record, window_ms) and anchors.in_order(call, record)
