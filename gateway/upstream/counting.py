"""Who has its prompt counted: one call a run at a time, each call at most once; the others of that run stand in line for the counter."""

from __future__ import annotations

from gateway.upstream.waiter import Waiter

RunKey = tuple[str, str]


class Counting:
    def __init__(self) -> None:
        self._now: dict[RunKey, Waiter] = {}
        self._line: dict[RunKey, dict[Waiter, None]] = {}

    def may_begin(self, waiter: Waiter) -> bool:
        """True: its count begins. Else it stands in line and is decided again when the run's counter is free."""
        if waiter.run in self._now:
            self._line.setdefault(waiter.run, {})[waiter] = None
            return False
        self._now[waiter.run] = waiter
        waiter.counting = True
        return True

    def ended(self, waiter: Waiter) -> list[Waiter]:
        """The count is done, failed or no longer wanted. Returns who stood in line."""
        waiter.counting = False
        if self._now.get(waiter.run) is not waiter:
            return []
        del self._now[waiter.run]
        return list(self._line.pop(waiter.run, ()))
