"""Whether an upstream gets calls: by what its health path says, by what became of the calls it had, and by what a person wants.

Calls that fail in a row open the circuit; a pause later, once the health path answers well, one call is let through (half open): if it goes well the circuit
closes, else the pause doubles. Rule: no single run can open it, for its prompt may be what the engine chokes on; only what no prompt can cause (no connection)
counts whoever it was. What runs is never stopped for it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

FAILURES: Final = 5
"""In a row, of at least `RUNS` runs, unless it is set otherwise. 0: it is never opened by them."""
RUNS: Final = 2
PAUSE_FIRST_MS: Final = 1_000
PAUSE_LONGEST_MS: Final = 8_000
FAILED_STATUS: Final = 500
"""From here on an answer says that the engine failed; what is below is the call's own fault."""


class Standing(StrEnum):
    SERVES = "serves"
    TRIED = "tried"
    """Half open: one call at a time, until one went well."""
    OPEN = "open"
    """Its calls failed in a row."""
    UNHEALTHY = "unhealthy"
    """Its health path says so, or it refuses connections."""
    DRAINED = "drained"
    """A person wants no calls there."""


class Circuit:
    """One upstream's. Whoever tells it something asks `slots` afterwards."""

    def __init__(self, slots: int, now_ms: Callable[[], int], failures: int = FAILURES) -> None:
        self._slots = slots
        self._failures = failures
        self._now_ms = now_ms
        self._healthy = True
        self._failed = 0
        self._runs: set[str] = set()
        self._pause_ms = 0
        self._until_ms: int | None = None
        """While it is open: when it may be tried."""
        self._tried = False
        self.drained = False
        self.reason = ""
        """Why it is open or tried."""

    @property
    def standing(self) -> Standing:
        if self.drained:
            return Standing.DRAINED
        if not self._healthy:
            return Standing.UNHEALTHY
        if self._until_ms is not None:
            return Standing.OPEN
        return Standing.TRIED if self._tried else Standing.SERVES

    @property
    def slots(self) -> int:
        """How many calls it may have."""
        match self.standing:
            case Standing.SERVES:
                return self._slots
            case Standing.TRIED:
                return 1
            case _:
                return 0

    def probed(self, healthy: bool) -> None:
        """Its health path was asked. One that came back from the dead is not tried first: the health path knew."""
        back = healthy and not self._healthy
        self._healthy = healthy
        if back:
            self.went_well()
        elif healthy and self._until_ms is not None and self._now_ms() >= self._until_ms:
            self._until_ms, self._tried = None, True

    def refused(self) -> None:
        """A call found that it refuses connections."""
        self._healthy = False

    def went_well(self) -> None:
        """A call was answered, well or with a fault of its own."""
        if self._until_ms is not None:
            return  # begun before it was opened
        self._failed, self._tried, self._pause_ms, self.reason = 0, False, 0, ""
        self._runs.clear()

    def failed(self, run: str, what: str, *, connected: bool = True) -> int | None:
        """Returns how long the pause is where this opened it."""
        if self._until_ms is not None or not self._failures:
            return None
        self._failed += 1
        self._runs.add(run)
        several = len(self._runs) >= RUNS or not connected
        if not self._tried and (self._failed < self._failures or not several):
            return None
        self._pause_ms = min(max(PAUSE_FIRST_MS, self._pause_ms * 2), PAUSE_LONGEST_MS)
        self._until_ms, self._tried = self._now_ms() + self._pause_ms, False
        self.reason = f"{self._failed} calls in a row failed, the last: {what}"
        return self._pause_ms
