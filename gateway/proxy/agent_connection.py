"""One connection of an agent, on aiohttp's: what it may hold and how long before there is a request, and what becomes of what is no HTTP.

Rule: a head that does not come in time, or is too large, ends its connection in our own form; its text goes nowhere, for it can hold a key. A connection that
asks for another protocol gets its answer in this one and ends: what came behind would belong to a protocol that is not spoken here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader

from gateway.dialects.dialect import Wording
from gateway.ids import new_call_id
from gateway.logs import log
from gateway.proxy.agent_side import SERVER
from gateway.proxy.forms import worded_for_path
from gateway.proxy.raw_answer import head_of
from gateway.proxy.refusing import BAD_REQUEST, HEAD_LATE

HEADER_BYTES_MAX: Final = 16 * 1024
"""Of one header line or of the request line."""
HEADERS_MAX: Final = 128
READ_BUFFER_BYTES: Final = 1 << 20
"""Large bodies come in few pieces."""
LINGER_S: Final = 5.0
"""How long the rest of a refused body is read, so that the refusal arrives."""
TOLD_CONNECTIONS: Final = 64
"""So many above `max_connections` are told that they are too many; those above are closed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionBounds:
    head_s: float
    idle_s: float
    max_head_bytes: int
    max_connections: int


class Connection(web.RequestHandler):
    __slots__ = ("_head_bytes", "_head_timer", "_server")

    def __init__(self, server: Server, **options: Any) -> None:
        super().__init__(server, **options)
        self._server = server
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        """Runs while a head has begun and not ended."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._server.open > self._server.bounds.max_connections + TOLD_CONNECTIONS:
            self._server.on_too_many()
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._head_ended()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The framing of a body can break while its request is handled: who reads it is told at once."""
        super().data_received(data)
        waiter = self._waiter
        if waiter is not None and not waiter.done():  # whatever this was, it made no request
            self._head_goes_on(len(data))
            return
        if self._head_timer is not None:
            self._head_ended()
        if self._messages and self._current_request is not None and getattr(self._messages[-1][0], "exc", None) is not None:
            self._current_request.content.set_exception(web.RequestPayloadError("the framing of the body broke"))

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp asks for it after every read, and would parse an empty piece each time: where nothing was paused there is nothing to resume."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def _head_goes_on(self, size: int) -> None:
        if self._force_close:
            return
        self._head_bytes += size
        if self._head_bytes > self._server.bounds.max_head_bytes:
            self._give_up(BAD_REQUEST, "its head is too large")
        elif self._head_timer is None:
            self._head_timer = self._loop.call_later(self._server.bounds.head_s, self._give_up, HEAD_LATE, "its head did not come in time")

    def _head_ended(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self, wording: Wording, why: str) -> None:
        """There is no request to answer, so the answer is written as it is."""
        self._head_ended()
        if self.transport is None or self._force_close:
            return
        call_id = self._malformed(why)
        reply = worded_for_path("", wording)
        headers = {"x-request-id": call_id, "request-id": call_id, "Server": SERVER, "Content-Type": reply.content_type, **reply.headers}
        self.transport.write(head_of(reply.status, headers, length=len(reply.body), keep_alive=False) + reply.body)
        self.force_close()

    def _malformed(self, why: str) -> str:
        call_id = new_call_id()
        self._server.on_malformed()
        log.info("a request is not well-formed", extra={"fields": {"call": call_id, "error": why}})
        return call_id

    def handle_error(self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None) -> web.StreamResponse:
        """What the parser refused, before there was a request."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer is under way: it can only be broken off")
        response = whole(self._malformed(type(exc).__name__), BAD_REQUEST)
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        error = kw.get("exc_info")
        log.warning("a connection was given up", extra={"fields": {"error": type(error).__name__}})


class Server(web.Server):
    """aiohttp's, with our connections."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        bounds: ConnectionBounds,
        *,
        on_malformed: Callable[[], object],
        on_too_many: Callable[[], object],
    ) -> None:
        super().__init__(
            handler,
            request_factory=self._requested,
            handler_cancellation=True,  # without it nobody hears that an agent left
            access_log=None,
            keepalive_timeout=bounds.idle_s,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            max_headers=HEADERS_MAX,
            lingering_time=LINGER_S,
            read_bufsize=READ_BUFFER_BYTES,
            tcp_keepalive=True,
            auto_decompress=False,
        )
        self.bounds = bounds
        self.on_malformed = on_malformed
        self.on_too_many = on_too_many

    def __call__(self) -> web.RequestHandler:
        return Connection(self, loop=self._loop, **self._kwargs)

    @property
    def open(self) -> int:
        """Connections, without a list of them."""
        return len(self._connections)

    def _requested(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        if message.upgrade:  # the parser drops what came behind it in the same read: another request could lose its beginning
            message = message._replace(should_close=True)
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop)


def whole(call_id: str, wording: Wording, target: str = "") -> web.Response:
    """An answer to what is no call, with its ids all the same."""
    reply = worded_for_path(target, wording)
    headers = {"x-request-id": call_id, "request-id": call_id, "Server": SERVER, **reply.headers, "Connection": "close"}
    return web.Response(status=reply.status, body=reply.body, content_type=reply.content_type, headers=headers)
