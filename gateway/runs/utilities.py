"""Utility requests of one run: counted, and one at a time. They cost nothing, so nothing but this keeps an agent from asking without end.

The count is of this process: it begins anew after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

WAITING_MAX: Final = 16
"""More that wait for their turn are asked to come again."""


class Utilities:
    __slots__ = ("_turn", "_waiting", "asked")

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0
        self.asked = 0

    @property
    def crowded(self) -> bool:
        return self._waiting >= WAITING_MAX

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Counts the request, and waits for the one before."""
        self.asked += 1
        self._waiting += 1
        try:
            async with self._turn:
                yield
        finally:
            self._waiting -= 1
