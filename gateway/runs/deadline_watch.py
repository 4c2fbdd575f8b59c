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
        now_ms, in_flight, cut = self._now_ms(), self._runs.in_flight, 0
        over: set[tuple[str, str]] = set()
        for campaign, run, key_id in {(call.campaign, call.run, call.key_id) for call in in_flight.calls() if call.cut is None}:
            key = self._runs.key(key_id)
            wall = None if key is None else self._runs.wall(key)
            if wall is not None and wall.passed(now_ms):
                cut += in_flight.cut_key(campaign, run, key_id, Outcome.DEADLINE_CUT, wall.shortfall(now_ms))
                over.add((campaign, run))
            elif key is not None and (deadline := self._runs.deadline(key)) is not None and deadline.passed(now_ms):
                over.add((campaign, run))
        for campaign, run in over:
            self._recheck(campaign, run)
        return cut

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                self.look()
            except Exception:  # a fault in one look may not end the watch
                _log.exception("looking for deadlines")
