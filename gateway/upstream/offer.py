"""What comes in from an engine, offered to its reader in the loop's own callback: to wake a task for each event would cost as much as to pass the event on.

The reader's task waits for `arrival`. What was not taken at once ends the waiting: a chunk, or (empty) that the body has ended or broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp

from gateway.upstream.watch import Watch

AtOnce = Callable[[bytes], bool]
"""Takes a chunk without waiting. False: the reader's task has to go on with it."""


class Offer:
    """One wait. To be called after every arrival."""

    __slots__ = ("_arrival", "_at_once", "_clock", "_content", "_more", "_read", "_reading", "_watch")

    def __init__(self, content: aiohttp.StreamReader, watch: Watch, at_once: AtOnce, arrival: asyncio.Future[bytes]) -> None:
        self._content = content
        self._read = content.read_nowait
        self._watch = watch
        self._clock = arrival.get_loop().time
        self._at_once = at_once
        self._arrival = arrival
        self._reading = False
        self._more = False

    def __call__(self) -> None:
        if self._reading:  # reading made room, and so more came in
            self._more = True
            return
        self._reading = True
        try:
            self._offer()
            while self._more:
                self._more = False
                self._offer()
        except Exception as error:
            if not self._arrival.done():
                self._arrival.set_exception(error)
        finally:
            self._reading = False

    def _offer(self) -> None:
        arrival, watch = self._arrival, self._watch
        if arrival.done():
            return
        data = self._read()  # raises what broke the body
        if data:
            if watch.first_byte_at is not None and self._at_once(data):
                watch.waiting_since = self._clock()
            elif not arrival.done():
                arrival.set_result(data)
                return
        if self._content.is_eof() and not arrival.done():
            arrival.set_result(b"")
