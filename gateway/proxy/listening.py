"""The data listener: aiohttp's low-level server, one handler, nothing but declared APIs behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from gateway.dialects.dialect import Wording
from gateway.errors import ConfigurationError
from gateway.ids import new_call_id
from gateway.logs import log
from gateway.proxy.body import plainly_framed
from gateway.proxy.exchange import answer
from gateway.proxy.forms import worded_for_path
from gateway.proxy.refusing import BAD_REQUEST, refusal_wording
from gateway.services import Services
from gateway.settings.declaration import Data
from gateway.settings.listeners import BoundSocket, server_tls
from gateway.upstream.call import Refusal

KEEP_ALIVE_S = 75.0
"""An agent's idle connection is kept this long."""
HEADER_BYTES_MAX = 16 * 1024
"""Of one header line or of the request line."""
READ_BUFFER_BYTES = 1 << 20
"""Large bodies come in few pieces."""
BACKLOG = 1024
"""Connections that the kernel holds until they are accepted."""
LINGER_S = 5.0
"""How long the rest of a refused body is read, so that the refusal arrives."""


class Connection(web.RequestHandler):
    """One connection. What is no HTTP is answered in our own form, and its text goes nowhere: it can hold a key."""

    __slots__ = ()

    def handle_error(self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None) -> web.StreamResponse:
        """What the parser refused, before there was a request."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer is under way: it can only be broken off")
        call_id = new_call_id()
        if isinstance(self._manager, Server):
            self._manager.on_malformed()
        log.info("a request is not well-formed", extra={"fields": {"call": call_id, "error": type(exc).__name__}})
        response = _whole(call_id, BAD_REQUEST)
        response.force_close()
        return response

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp asks for it after every read, and would parse an empty piece each time: where nothing was paused there is nothing to resume."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        error = kw.get("exc_info")
        log.warning("a connection was given up", extra={"fields": {"error": type(error).__name__}})

    def data_received(self, data: bytes) -> None:
        """The framing of a body can break while its request is handled: who reads it is told at once."""
        super().data_received(data)
        if self._messages and self._current_request is not None and getattr(self._messages[-1][0], "exc", None) is not None:
            self._current_request.content.set_exception(web.RequestPayloadError("the framing of the body broke"))


class Server(web.Server):
    """aiohttp's, with our connections."""

    on_malformed: Callable[[], None] = staticmethod(lambda: None)

    def __call__(self) -> web.RequestHandler:
        return Connection(self, loop=self._loop, **self._kwargs)


def _whole(call_id: str, wording: Wording, target: str = "") -> web.Response:
    """An answer to what is no call, with its ids all the same."""
    reply = worded_for_path(target, wording)
    headers = {"x-request-id": call_id, "request-id": call_id, **reply.headers, "Connection": "close"}
    return web.Response(status=reply.status, body=reply.body, content_type=reply.content_type, headers=headers)


class DataListener:
    def __init__(self, services: Services, data: Data) -> None:
        """Raises ConfigurationError where a certificate can't be used."""
        host, _, port = data.listen.rpartition(":")
        self.host, self.port = host.strip("[]"), int(port) if host else 0
        self._data = data
        self._tls = server_tls("data", data.tls_cert, data.tls_key)
        self._services = services
        self._server = Server(
            self._handle,
            handler_cancellation=True,  # without it nobody hears that an agent left
            access_log=None,
            keepalive_timeout=KEEP_ALIVE_S,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            lingering_time=LINGER_S,
            read_bufsize=READ_BUFFER_BYTES,
            tcp_keepalive=True,
            auto_decompress=False,
        )
        self._server.on_malformed = services.metrics.refusals.labels(BAD_REQUEST.code).inc
        self._runner = web.ServerRunner(self._server, shutdown_timeout=1.0)
        self._sites: list[web.BaseSite] = []
        self._socket: BoundSocket | None = None

    @property
    def address(self) -> str:
        """`http://HOST:PORT`, `https://HOST:PORT`, or `unix:PATH` where it listens on no other."""
        if not self.host:
            return f"unix:{self._data.socket}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    async def start(self) -> None:
        """Raises ConfigurationError where it can't listen there."""
        await self._runner.setup()
        try:
            if self.host:
                await self._open(web.TCPSite(self._runner, self.host, self.port, backlog=BACKLOG, ssl_context=self._tls))
                self.port = self._runner.addresses[0][1]
            if self._data.socket is not None:
                self._socket = BoundSocket(self._data.socket, "data.socket", mode=0o666)
                await self._open(web.SockSite(self._runner, self._socket.bound, backlog=BACKLOG))
        except OSError as error:
            await self.stop()
            raise ConfigurationError(
                f"data.listen: can't listen on {self.host}:{self.port}: {error.strerror}; choose another address, or end what listens there"
            ) from error
        except ConfigurationError:
            await self.stop()
            raise

    async def _open(self, site: web.BaseSite) -> None:
        self._sites.append(site)
        await site.start()

    async def stop_accepting(self) -> None:
        for site in self._sites:
            await site.stop()

    async def stop(self) -> None:
        await self._runner.cleanup()
        if self._socket is not None:
            self._socket.remove()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if len(self._server.connections) > self._services.settings.bounds.max_connections:
            self._services.metrics.refusals.labels("overloaded").inc()
            refused = _whole(new_call_id(), refusal_wording(Refusal(code="overloaded", final=False)), request.raw_path)
            refused.force_close()
            return refused
        response = await answer(request, self._services)
        if not plainly_framed(request):
            response.force_close()  # what comes behind it could be part of it
        return response
