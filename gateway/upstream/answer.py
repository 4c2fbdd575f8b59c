"""An engine's answer while it comes in: piece by piece, until its body has its end or its connection is left.

What arrives is offered to its reader in the loop's own callback: to wake a task for each event would cost as much as to pass the event on. What was not taken
there, and all that comes behind it, waits in order for the reader's task; an engine whose answer piles up is not read on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, Protocol

from gateway.errors import EngineFailure
from gateway.upstream.connection import EngineConnection
from gateway.upstream.watch import Watch

BODY_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of an answer that is read whole."""
HELD_BYTES: Final = 512 * 1024
"""Held of an answer whose reader is slow; then the engine is no longer read."""


class Taker(Protocol):
    """Takes what arrives where it arrives. What it raises reaches the reader's task."""

    whole: Callable[[bytes], bool] | None
    """Where there is one: takes an HTTP chunk with its frame, before anything was parsed. False: it is parsed."""
    passed_at: float
    """Loop time at which `whole` took something."""

    def at_once(self, data: bytes) -> bool:
        """A piece of the body. False: the reader's task has to go on with it."""


class Answer:
    """Status and headers are here, the body is coming. Left early, its connection is closed. To its connection it is the receiver."""

    __slots__ = (
        "_complete",
        "_connection",
        "_end",
        "_failure",
        "_held",
        "_held_bytes",
        "_loop",
        "_reused",
        "_taker",
        "_waiter",
        "_watch",
        "connected_ms",
        "content_encoding",
        "content_type",
        "headers",
        "status",
    )

    def __init__(self, connection: EngineConnection, watch: Watch, connected_ms: int) -> None:
        self._connection: EngineConnection | None = connection
        self._reused = connection.served
        self._loop = asyncio.get_running_loop()
        self._watch = watch
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._taker: Taker | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._end = self._complete = False
        self.connected_ms = connected_ms
        """From the beginning to a connection; 0 for one from the pool."""
        self.status = 0
        self.headers: Mapping[str, str] = {}
        """Names in lower case."""
        self.content_type = ""
        self.content_encoding = "identity"

    @property
    def first_byte_ms(self) -> int | None:
        """From the beginning to the first byte of the body; None while there is none."""
        at = self._watch.first_byte_at
        return None if at is None else round((at - self._watch.started) * 1_000)

    @property
    def complete(self) -> bool:
        """The body was read to an end that the engine itself gave it."""
        return self._complete

    async def asked(self, head: bytes, body: bytes, on_written: Callable[[], object] | None) -> None:
        """Sends the request; done when the head of the answer is here. Raises EngineFailure."""
        assert self._connection is not None
        self._watch.begin(self._expired)
        self._connection.ask(self, head, body)
        if on_written is not None:
            on_written()
        try:
            while not self.status:
                self._check()
                await self._something()
        except BaseException:
            self.leave()
            raise

    async def chunks(self, taker: Taker | None = None) -> AsyncIterator[bytes]:
        """As they come off the wire, but for what `taker` took. Raises EngineFailure: died, timeout; and what `taker` raises."""
        watch = self._watch
        watch.taker = taker
        while True:
            if watch.expired:
                raise self._too_long()
            if self._held:
                data = self._taken()
                if watch.first_byte_at is None:
                    watch.heard()
                watch.waiting_since = None  # what the reader takes for itself is not the engine's silence
                yield data
            elif self._end:
                self._complete = True
                watch.end()
                return
            else:
                self._check()
                watch.waiting_since = self._loop.time()
                self._taker = taker
                try:
                    await self._something()
                finally:
                    self._taker = None
                    if self._connection is not None:
                        self._connection.whole = None

    async def read(self, max_bytes: int = BODY_BYTES_MAX) -> bytes:
        """The whole body. Raises EngineFailure, also where it is larger."""
        gathered: list[bytes] = []
        size = 0
        async for data in self.chunks():
            size += len(data)
            if size > max_bytes:
                raise EngineFailure("died", "", f"the engine's answer is larger than {max_bytes} bytes")
            gathered.append(data)
        return b"".join(gathered)

    def leave(self) -> None:
        """Closes the connection unless the body came to its end (then it is in the pool already)."""
        self._watch.end()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.leave()

    # What the connection calls.

    def begun(self, status: int, headers: dict[str, str]) -> None:
        self.status, self.headers = status, headers
        self.content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        self.content_encoding = headers.get("content-encoding", "identity").strip().lower() or "identity"
        self._wake()

    def arrived(self, data: bytes) -> None:
        taker, waiter, watch = self._taker, self._waiter, self._watch
        if taker is not None and waiter is not None and not waiter.done() and not self._held and watch.first_byte_at is not None:
            try:
                if taker.at_once(data):
                    watch.waiting_since = self._loop.time()
                    if self._connection is not None:
                        self._connection.whole = taker.whole
                    return
            except Exception as error:
                self._failure = error
                self._wake()
                return
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > HELD_BYTES and self._connection is not None:
            self._connection.pause()
        self._wake()

    def ended(self) -> None:
        self._connection = None
        self._end = True
        self._wake()

    def lost(self, why: BaseException | None) -> None:
        connection, self._connection = self._connection, None
        what = "" if why is None else f": {type(why).__name__}"
        if self.status:
            self._failure = EngineFailure("died", "", f"the connection to the engine broke{what}")
        elif self._reused and connection is not None and not connection.heard:
            self._failure = EngineFailure("closed", "", f"a pooled connection was dead{what}")
        else:
            self._failure = EngineFailure("died", "", f"the engine gave no answer{what}")
        self._wake()

    # Waiting.

    def _check(self) -> None:
        """Raises what went wrong, and lets go of it: it would hold who raises it, and that one this answer."""
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure

    def _taken(self) -> bytes:
        held = self._held
        data = held[0] if len(held) == 1 else b"".join(held)
        held.clear()
        if self._held_bytes > HELD_BYTES and self._connection is not None:
            self._connection.resume()
        self._held_bytes = 0
        return data

    async def _something(self) -> None:
        """Until something has changed."""
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _expired(self) -> None:
        self._failure = self._too_long()
        self.leave()
        self._wake()

    def _too_long(self) -> EngineFailure:
        return EngineFailure("timeout", self._watch.expired, f"the engine took too long ({self._watch.expired})")
