"""An engine's answer while it comes in, and the watch over its phases.

One timer a call, not one a chunk: the watch looks when the nearest time-out could be due and sleeps on if the engine was heard of meanwhile. Time that the
reader takes for itself (a slow agent) is not the engine's silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import aiohttp

from gateway.errors import EngineFailure
from gateway.upstream.pool import on_lost

BODY_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of an answer that is read whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """One a phase, in seconds."""

    connect_s: float = 10
    """TCP and TLS."""
    first_byte_s: float = 600
    """From sending to the first byte of the body: a long prompt is read in this time."""
    between_chunks_s: float = 120
    whole_s: float = 3_600


class Watch:
    """Closes the answer when a phase takes too long, and remembers which."""

    __slots__ = ("_close", "_handle", "_loop", "_started", "_timeouts", "expired", "first_byte_at", "waiting_since")

    def __init__(self, loop: asyncio.AbstractEventLoop, started: float, timeouts: Timeouts) -> None:
        self._loop = loop
        self._started = started
        self._timeouts = timeouts
        self._handle: asyncio.TimerHandle | None = None
        self._close: Callable[[], None] | None = None
        self.expired = ""
        self.first_byte_at: float | None = None
        self.waiting_since: float | None = None

    @property
    def head_due(self) -> float:
        """Loop time at which the answer's head must be here."""
        return self._due(self._started)[1]

    @property
    def head_phase(self) -> str:
        return self._due(self._started)[0]

    def now(self) -> float:
        return self._loop.time()

    def begin(self, close: Callable[[], None]) -> None:
        self._close = close
        self._look()

    def heard(self) -> None:
        """The first byte: from now on silence between chunks is what is watched."""
        self.first_byte_at = self._loop.time()
        if self._handle is not None:
            self._handle.cancel()
        self._look()

    def end(self) -> None:
        self._close = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        close = self._close
        if close is None:
            return
        now = self._loop.time()
        phase, due = self._due(now)
        if due <= now:
            self.expired = phase
            self.end()
            close()
        else:
            self._handle = self._loop.call_at(due, self._look)

    def _due(self, now: float) -> tuple[str, float]:
        whole = self._started + self._timeouts.whole_s
        if self.first_byte_at is None:
            phase, due = "first_byte", self._started + self._timeouts.first_byte_s
        else:
            phase, due = "between_chunks", (self.waiting_since or now) + self._timeouts.between_chunks_s
        return ("whole", whole) if whole <= due else (phase, due)


class Answer:
    """Status and headers are here, the body is coming. Left early, its connection is closed."""

    __slots__ = ("_complete", "_deaf", "_response", "_started", "_watch", "connected_ms", "content_encoding", "content_type", "headers", "status")

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
        watch.begin(response.close)
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

    async def chunks(self) -> AsyncIterator[bytes]:
        """As they come off the wire. Raises EngineFailure: died, timeout."""
        content = self._response.content
        watch = self._watch
        clock = watch.now
        while True:
            watch.waiting_since = clock()
            try:
                data = await content.readany()
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
        if not self._complete:
            self._response.close()

    def _lost(self) -> None:
        """A body that breaks the rules of its framing ends aiohttp's reading without a word to who waits for it."""
        content = self._response.content
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the connection ended inside the answer"))

    def _failure(self, error: Exception) -> EngineFailure:
        if self._watch.expired:
            return EngineFailure("timeout", self._watch.expired, f"the engine took too long ({self._watch.expired})")
        return EngineFailure("died", "", f"the connection to the engine broke: {type(error).__name__}")
