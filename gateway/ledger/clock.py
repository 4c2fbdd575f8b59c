"""The only clock of records: never behind the last entry, and within a process it runs with CLOCK_BOOTTIME, so that a suspended machine's time counts.

Where the system's clock goes its own way by more than five minutes, or stands behind the last entry at start, one of the two is wrong and only a person can
say which: until `accept` nothing is admitted.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.errors import ClockUncertain

DRIFT_MAX_MS = 5 * 60 * 1000


def system_ms() -> int:
    return time.time_ns() // 1_000_000


if hasattr(time, "CLOCK_BOOTTIME"):

    def boot_ms() -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

else:  # not Linux: a suspended machine's time shows as drift

    def boot_ms() -> int:
        return time.monotonic_ns() // 1_000_000


class LedgerClock:
    def __init__(self, system_ms: Callable[[], int] = system_ms, boot_ms: Callable[[], int] = boot_ms) -> None:
        self._system_ms = system_ms
        self._boot_ms = boot_ms
        self._accepted_drift_ms = 0
        self._doubt = ""
        self._run_from(system_ms())

    def start(self, last_entry_ms: int) -> None:
        """Once, when the ledger has been read."""
        system = self._system_ms()
        self._run_from(max(system, last_entry_ms))
        if system < last_entry_ms:
            self._doubt = f"the system clock stands {last_entry_ms - system} ms behind the last entry"

    def now_ms(self) -> int:
        return self._ahead_ms + self._boot_ms()

    def drift_ms(self) -> int:
        """How far the system's clock is ahead."""
        return self._system_ms() - self._ahead_ms - self._boot_ms()

    def check(self) -> None:
        """Raises ClockUncertain, from the first doubt until `accept`."""
        if doubt := self.doubt:
            raise ClockUncertain(f"{doubt}: `gateway ledger clock --accept` when it is right")

    @property
    def doubt(self) -> str:
        """Why nothing is admitted; empty where all is well."""
        if not self._doubt:
            drift = self.drift_ms()
            if abs(drift - self._accepted_drift_ms) > DRIFT_MAX_MS:
                self._doubt = f"the system clock is {abs(drift)} ms {'ahead of' if drift > 0 else 'behind'} the ledger's"
        return self._doubt

    def accepted_ms(self, last_entry_ms: int) -> int:
        """What `accept` would make it."""
        return max(self._system_ms(), last_entry_ms)

    def accept(self, last_entry_ms: int) -> int:
        """The system's clock is right from now on. Gives the new time: still never behind the last entry."""
        self._run_from(self.accepted_ms(last_entry_ms))
        self._accepted_drift_ms = self.drift_ms()
        self._doubt = ""
        return self.now_ms()

    def _run_from(self, now_ms: int) -> None:
        self._ahead_ms = now_ms - self._boot_ms()
        """What is added to the time since the boot."""
