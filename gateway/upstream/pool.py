"""The connections to one engine: an aiohttp session that adds nothing, follows nothing, remembers nothing, and tells whether a connection was a used one.

A pooled connection is thrown away before the engine would (`pool_idle_s`): a POST on a dead one may have been read, so it can't be sent again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from types import SimpleNamespace
from typing import Final
from weakref import WeakSet

import aiohttp
from aiohttp import TraceConfig
from aiohttp.payload import BytesPayload, Payload

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

    def __init__(self, body: bytes) -> None:
        Payload.__init__(self, body, content_type="application/json")
        self._size = len(body)

    async def write_with_length(self, writer: aiohttp.abc.AbstractStreamWriter, content_length: int | None) -> None:
        await writer.write(self._value)


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """The system's authorities, or only those in `ca_file`. Raises OSError or ssl.SSLError where it can't be read."""
    context = ssl.create_default_context(cafile=ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def open_session(*, pool_idle_s: float, tls: ssl.SSLContext | None) -> aiohttp.ClientSession:
    """To be called inside the running loop; the caller closes it."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
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
        trace_configs=[_tracing()],
    )


def on_lost(response: aiohttp.ClientResponse, callback: Callable[[], None]) -> Callable[[], None]:
    """Calls back when the answer's connection ends while it is listened to; what is returned ends the listening."""
    connection = response.connection
    lost = connection.protocol.closed if connection is not None and connection.protocol is not None else None
    if lost is None:
        return _nothing
    if lost not in _LISTENED:
        _LISTENED.add(lost)
        lost.add_done_callback(_retrieved)

    def heard(_future: asyncio.Future[None]) -> None:
        callback()

    lost.add_done_callback(heard)
    return lambda: _remove(lost, heard)


_LISTENED: Final[WeakSet[asyncio.Future[None]]] = WeakSet()
"""Of each connection its end: a reset of an idle one is nobody's error, and must not be logged as one that nobody took."""


def _nothing() -> None:
    return


def _remove(lost: asyncio.Future[None], heard: Callable[[asyncio.Future[None]], None]) -> None:
    lost.remove_done_callback(heard)


def _retrieved(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()


def _tracing() -> TraceConfig:
    config = TraceConfig()
    config.on_connection_create_end.append(_created)
    config.on_connection_reuseconn.append(_reused)
    config.freeze()
    return config


async def _created(session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceConnectionCreateEndParams) -> None:
    progress = context.trace_request_ctx
    if isinstance(progress, Progress):
        progress.connected_at = asyncio.get_running_loop().time()


async def _reused(session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceConnectionReuseconnParams) -> None:
    progress = context.trace_request_ctx
    if isinstance(progress, Progress):
        progress.connected_at = asyncio.get_running_loop().time()
        progress.reused = True
