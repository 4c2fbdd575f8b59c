"""When what has gathered goes as one batch.

A commit takes the processor about as long as a whole call does, however little is in it. So it waits while the loop goes on posting: until that has turned a
few times without a new command, which are microseconds where nothing else is to be done, and a few milliseconds at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized
from typing import Final

QUIET_TURNS: Final = 4
"""In so many turns of the loop bytes that came in have become a command."""
GATHER_S: Final = 0.002
"""At most, where the loop never comes to rest."""


class Gathering:
    def __init__(self, waiting: Callable[[], Sized], hand_over: Callable[[], object]) -> None:
        self._waiting = waiting
        self._hand_over = hand_over
        self._under_way = False

    def begin(self) -> None:
        """`hand_over` follows, once."""
        if not self._under_way:
            self._under_way = True
            loop = asyncio.get_running_loop()
            loop.call_soon(self._turn, loop, 0, 0, loop.time() + GATHER_S)

    def _turn(self, loop: asyncio.AbstractEventLoop, before: int, quiet: int, until_s: float) -> None:
        gathered = len(self._waiting())
        quiet = quiet + 1 if gathered == before else 0
        if quiet < QUIET_TURNS and loop.time() < until_s:
            loop.call_soon(self._turn, loop, gathered, quiet, until_s)
        else:
            self._under_way = False
            self._hand_over()
