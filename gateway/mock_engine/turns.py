"""Who runs and who waits: an engine's slots, first come, first served. The limit is read anew at each turn, for it may be changed by script."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.mock_engine.facts import Counters
from gateway.mock_engine.log import CallRecord


class Turns:
    """`limit` says how many run side by side; None: all."""

    def __init__(self, counters: Counters, limit: Callable[[], int | None]) -> None:
        self._counters = counters
        self._limit = limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def slot(self, record: CallRecord) -> AsyncIterator[None]:
        """Held from a free slot to the end of the block."""
        counters = self._counters
        if self._waiting or not self._free():
            await self._turn()
        else:
            counters.active += 1
        counters.most_active = max(counters.most_active, counters.active)
        number = next(number for number in range(counters.active) if number not in counters.at_work)
        counters.at_work[number] = record
        try:
            yield
        finally:
            del counters.at_work[number]
            counters.active -= 1
            self.wake()

    def book(self, record: CallRecord) -> None:
        """What a call that had a slot used, however it ended."""
        self._counters.prompt_tokens += record.prompt_tokens - record.cached_tokens
        self._counters.cached_tokens += record.cached_tokens
        self._counters.output_tokens += record.output_tokens

    def wake(self) -> None:
        """A waiter gets its slot here, so that a newcomer can't slip in between."""
        while self._waiting and self._free():
            turn = self._waiting.popleft()
            if not turn.done():
                self._counters.active += 1
                turn.set_result(None)

    def _free(self) -> bool:
        limit = self._limit()
        return limit is None or self._counters.active < limit

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._counters.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the slot was handed over at that very moment
                self._counters.active -= 1
                self.wake()
            raise
        finally:
            self._counters.waiting -= 1
