"""An engine's answer while it comes in: chunk by chunk, until its body has its end or its connection is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import aiohttp

from gateway.errors import EngineFailure
from gateway.upstream.offer import AtOnce, Offer
from gateway.upstream.pool import EngineProtocol, nothing, on_lost
from gateway.upstream.watch import Watch

BODY_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of an answer that is read whole."""


class Answer:
    """Status and headers are here, the body is coming. Left early, its connection is closed."""

    __slots__ = (
        "_arrival",
        "_complete",
        "_deaf",
        "_protocol",
        "_response",
        "_started",
        "_watch",
        "connected_ms",
        "content_encoding",
        "content_type",
        "headers",
        "status",
    )

    def __init__(self, response: aiohttp.ClientResponse, watch: Watch, started: float, connected_ms: int) -> None:
        self._response = response
        self._watch = watch
        self._started = started
        self._complete = False
        self.connected_ms = connected_ms
        """From the beginning to a connection; 0 for one from the pool."""
        self.status = response.status
        self.headers = response.headers
        self.content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        self.content_encoding = response.headers.get("Content-Encoding", "identity").strip().lower() or "identity"
        protocol = response.connection.protocol if response.connection is not None else None
        self._protocol = protocol if isinstance(protocol, EngineProtocol) else None
        self._arrival: asyncio.Future[bytes] | None = None
        watch.begin(self._close)
        self._deaf = on_lost(response, self._lost)

    @property
    def first_byte_ms(self) -> int | None:
        """From the beginning to the first byte of the body; None while there is none."""
        at = self._watch.first_byte_at
        return None if at is None else round((at - self._started) * 1_000)

    @property
    def complete(self) -> bool:
        """The body was read to an end that the engine itself gave it."""
        return self._complete

    async def chunks(self, at_once: AtOnce | None = None) -> AsyncIterator[bytes]:
        """As they come off the wire, but for those that `at_once` took. Raises EngineFailure: died, timeout; and what `at_once` raises."""
        content = self._response.content
        watch = self._watch
        clock = watch.now
        while True:
            watch.waiting_since = clock()
            try:
                data = await (content.readany() if at_once is None or self._protocol is None else self._offered(at_once, self._protocol))
            except (aiohttp.ClientError, OSError) as error:
                raise self._failure(error) from error
            if watch.expired:
                raise EngineFailure("timeout", watch.expired, f"the engine took too long ({watch.expired})")
            if not data:
                self._complete = True
                watch.end()
                return
            if watch.first_byte_at is None:
                watch.heard()
            watch.waiting_since = None
            yield data

    async def _offered(self, at_once: AtOnce, protocol: EngineProtocol) -> bytes:
        """The next chunk that was not taken at once; empty at the end of the body."""
        content = self._response.content
        while True:
            data: bytes = content.read_nowait()
            if data or content.is_eof():
                return data
            arrival = self._arrival = asyncio.get_running_loop().create_future()
            protocol.on_arrival = Offer(content, self._watch, at_once, arrival)
            try:
                data = await arrival
            finally:
                protocol.on_arrival = self._arrival = None
            if data:
                return data

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(b"")

    def _close(self) -> None:
        self._response.close()
        self._wake()

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
        """Closes the connection unless the body was read to its end (then it is in the pool already)."""
        self._watch.end()
        self._deaf()
        self._deaf = nothing  # what it listened with holds this answer
        if not self._complete:
            self._response.close()

    def _lost(self) -> None:
        """A body that breaks the rules of its framing ends aiohttp's reading without a word to who waits for it."""
        content = self._response.content
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the connection ended inside the answer"))
        self._wake()

    def _failure(self, error: Exception) -> EngineFailure:
        if self._watch.expired:
            return EngineFailure("timeout", self._watch.expired, f"the engine took too long ({self._watch.expired})")
        return EngineFailure("died", "", f"the connection to the engine broke: {type(error).__name__}")
