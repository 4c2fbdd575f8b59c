"""The connections to one engine: an aiohttp session that adds nothing, follows nothing, remembers nothing, and tells whether a connection was a used one.

A pooled connection is thrown away before the engine would (`pool_idle_s`): a POST on a dead one may have been read, so it can't be sent again.
"""

from __future__ import annotations

import ssl
from types import SimpleNamespace
from typing import Final

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


def _tracing() -> TraceConfig:
    config = TraceConfig()
    config.on_connection_create_end.append(_created)
    config.on_connection_reuseconn.append(_reused)
    config.freeze()
    return config


async def _created(session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceConnectionCreateEndParams) -> None:
    progress = context.trace_request_ctx
    if isinstance(progress, Progress):
        progress.connected_at = session.loop.time()


async def _reused(session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceConnectionReuseconnParams) -> None:
    progress = context.trace_request_ctx
    if isinstance(progress, Progress):
        progress.connected_at = session.loop.time()
        progress.reused = True
