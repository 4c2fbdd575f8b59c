"""When each lane of a run had its first call: the moment at which a call was admitted that was then sent.

The rule: a call that was never sent starts no clock. Until it is known whether a call was sent, it is taken for one that was.
"""

from __future__ import annotations

from collections.abc import Mapping


class FirstCalls:
    """Few are remembered: those whose fate is not known yet, and none once an earlier one was sent for certain."""

    __slots__ = ("_certain", "_open")

    def __init__(self, certain: Mapping[str, int] | None = None) -> None:
        self._certain = dict(certain or {})
        self._open: dict[str, tuple[str, int]] = {}
        """Call -> lane and moment."""

    def admitted(self, lane: str, call_id: str, at_ms: int) -> None:
        if self._certain.get(lane, at_ms + 1) > at_ms:
            self._open[call_id] = lane, at_ms

    def sent(self, call_id: str) -> None:
        """It was sent, whatever became of it."""
        if (found := self._open.pop(call_id, None)) is not None:
            lane, at_ms = found
            self._certain[lane] = min(at_ms, self._certain.get(lane, at_ms))

    def unsent(self, call_id: str) -> None:
        """It was voided, or its reservation was never written."""
        self._open.pop(call_id, None)

    def by_lane(self) -> dict[str, int]:
        first = dict(self._certain)
        for lane, at_ms in self._open.values():
            first[lane] = min(at_ms, first.get(lane, at_ms))
        return first
