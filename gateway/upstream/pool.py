"""The connections to one engine: an aiohttp session that adds nothing, follows nothing, remembers nothing, and tells whether a connection was a used one.

A pooled connection is thrown away before the engine would (`pool_idle_s`): a POST on a dead one may have been read, so it can't be sent again.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.payload import BytesPayload, Payload
from aiohttp.tracing import Trace

READ_BUFFER_BYTES: Final = 256 * 1024
"""Twice that is held of an answer whose reader is slow; then the engine is no longer read."""
HEADER_LINE_BYTES: Final = 16 * 1024
HEADERS_MAX: Final = 128


class Progress:
    """How far one request came: the evidence that failures are told apart by."""

    __slots__ = ("connected_at", "reused")

    def __init__(self) -> None:
        self.connected_at: float | None = None
        self.reused = False


class WholeBody(BytesPayload):
    """A request body that lies in memory and is written once, as it is (aiohttp warns of bytes above a megabyte)."""

    def __init__(self, body: bytes, on_written: Callable[[], object] | None = None) -> None:
        Payload.__init__(self, body, content_type="application/json")
        self._size = len(body)
        self._on_written = on_written

    async def write_with_length(self, writer: aiohttp.abc.AbstractStreamWriter, content_length: int | None) -> None:
        await writer.write(self._value)
        if self._on_written is not None:
            self._on_written()


PROGRESS: Final[ContextVar[Progress | None]] = ContextVar("progress", default=None)
"""Of the request that is being made in this task."""


class EngineProtocol(ResponseHandler):
    """aiohttp's side of one connection; whoever listens is told of what has come in before a task is woken for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.on_arrival: Callable[[], None] | None = None
        self.served = False
        """A request was given it before."""

    def data_received(self, data: bytes) -> None:
        ResponseHandler.data_received(self, data)
        if self.on_arrival is not None:
            self.on_arrival()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp asks for it after every read, and would parse an empty piece each time: where nothing was paused there is nothing to resume."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def connection_lost(self, exc: BaseException | None) -> None:
        ResponseHandler.connection_lost(self, exc)
        if self.on_arrival is not None:
            self.on_arrival()


def _engine_side(loop: asyncio.AbstractEventLoop) -> ResponseHandler:
    return EngineProtocol(loop)


class Pool(aiohttp.TCPConnector):
    """Notes on the request's progress when it has a connection, and whether that one served before (half the price of aiohttp's tracing)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = functools.partial(_engine_side, loop=self._loop)

    async def connect(self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout) -> aiohttp.connector.Connection:
        connection = await super().connect(req, traces, timeout)
        protocol = connection.protocol
        assert isinstance(protocol, EngineProtocol)
        reused, protocol.served = protocol.served, True
        if not reused and protocol.closed is not None:
            protocol.closed.add_done_callback(_retrieved)
        progress = PROGRESS.get()
        if progress is not None:
            progress.connected_at = asyncio.get_running_loop().time()
            progress.reused = reused
        return connection


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """The system's authorities, or only those in `ca_file`. Raises OSError or ssl.SSLError where it can't be read."""
    context = ssl.create_default_context(cafile=ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def open_session(*, pool_idle_s: float, tls: ssl.SSLContext | None) -> aiohttp.ClientSession:
    """To be called inside the running loop; the caller closes it."""
    return aiohttp.ClientSession(
        connector=Pool(
            limit=0,
            keepalive_timeout=pool_idle_s,
            force_close=False,
            ssl=tls if tls is not None else True,
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        raise_for_status=False,
        trust_env=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None),
        read_bufsize=READ_BUFFER_BYTES,
        max_line_size=HEADER_LINE_BYTES,
        max_field_size=HEADER_LINE_BYTES,
        max_headers=HEADERS_MAX,
        skip_auto_headers=("User-Agent", "Accept"),
    )


def on_lost(response: aiohttp.ClientResponse, callback: Callable[[], None]) -> Callable[[], None]:
    """Calls back when the answer's connection ends while it is listened to; what is returned ends the listening."""
    connection = response.connection
    lost = connection.protocol.closed if connection is not None and connection.protocol is not None else None
    if lost is None:
        return nothing

    def heard(_future: asyncio.Future[None]) -> None:
        callback()

    lost.add_done_callback(heard)
    return lambda: _remove(lost, heard)


def nothing() -> None:
    return


def _remove(lost: asyncio.Future[None], heard: Callable[[asyncio.Future[None]], None]) -> None:
    lost.remove_done_callback(heard)


def _retrieved(future: asyncio.Future[None]) -> None:
    """The reset of an idle connection is nobody's error, and must not be logged as one that nobody took."""
    if not future.cancelled():
        future.exception()
