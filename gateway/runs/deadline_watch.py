"""The watch over walls: cuts what runs past its run's deadline.

The rule: one task, not a timer a call, and the moment is asked of the ledger's clock at every look: time in which the process or the machine stood still, and
a clock that was set and accepted, count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from gateway.accounting.usage import Outcome
from gateway.runs.deadlines import earliest
from gateway.runs.runs import Runs

LOOK_EVERY_S: Final = 0.2
"""A cut comes within one second of its deadline: this, and what a busy loop adds."""

_log = logging.getLogger(__name__)


class DeadlineWatch:
    def __init__(self, runs: Runs, now_ms: Callable[[], int], recheck: Callable[[str, str], object]) -> None:
        """`recheck(campaign, run)`: its waiting calls are asked again whether they must be refused."""
        self._runs = runs
        self._now_ms = now_ms
        self._recheck = recheck
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def look(self) -> int:
        """How many calls were cut."""
        now_ms, cut = self._now_ms(), 0
        for campaign, run in self._runs.in_flight.runs():
            first = earliest(self._runs.deadlines(campaign, run))
            if first is not None and first.passed(now_ms):
                cut += self._cut(campaign, run, now_ms)
                self._recheck(campaign, run)
        return cut

    def _cut(self, campaign: str, run: str, now_ms: int) -> int:
        cut, in_flight = 0, self._runs.in_flight
        for key_id in in_flight.keys(campaign, run):
            key = self._runs.key(key_id)
            wall = None if key is None else self._runs.wall(key)
            if wall is not None and wall.passed(now_ms):
                cut += in_flight.cut_key(campaign, run, key_id, Outcome.DEADLINE_CUT, wall.shortfall(now_ms))
        return cut

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                self.look()
            except Exception:  # a fault in one look may not end the watch
                _log.exception("looking for deadlines")
