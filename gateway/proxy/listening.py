"""The data listener: aiohttp's low-level server, one handler, nothing but declared APIs behind it."""

from __future__ import annotations

from aiohttp import web

from gateway.errors import AddressUnavailable, ConfigurationError
from gateway.ids import new_call_id
from gateway.proxy.agent_connection import ConnectionBounds, Server, whole
from gateway.proxy.body import plainly_framed
from gateway.proxy.exchange import answer
from gateway.proxy.refusing import BAD_REQUEST, refusal_wording
from gateway.services import Services
from gateway.settings.declaration import Data
from gateway.settings.listeners import BoundSocket, in_words, server_tls
from gateway.upstream.call import Refusal

BACKLOG = 1024
"""Connections that the kernel holds until they are accepted."""


class DataListener:
    def __init__(self, services: Services, data: Data) -> None:
        """Raises ConfigurationError where a certificate can't be used."""
        host, _, port = data.listen.rpartition(":")
        self.host, self.port = host.strip("[]"), int(port) if host else 0
        self._data = data
        self._tls = server_tls("data", data.tls_cert, data.tls_key)
        self._services = services
        bounds, refusals = services.settings.bounds, services.metrics.refusals
        self._server = Server(
            self._handle,
            ConnectionBounds(
                head_s=bounds.head_seconds, idle_s=bounds.idle_seconds, max_head_bytes=bounds.max_head_bytes, max_connections=bounds.max_connections
            ),
            on_malformed=refusals.labels(BAD_REQUEST.code).inc,
            on_too_many=lambda: refusals.labels("overloaded").inc(),
        )
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
        return self._server.open

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
            raise AddressUnavailable(f"data.listen: {self.host}:{self.port}: {in_words(error)}") from error
        except ConfigurationError:
            await self.stop()
            raise

    async def _open(self, site: web.BaseSite) -> None:
        await site.start()
        self._sites.append(site)

    async def stop_accepting(self) -> None:
        while self._sites:
            await self._sites.pop().stop()

    async def stop(self) -> None:
        self._sites.clear()
        await self._runner.cleanup()
        if self._socket is not None:
            self._socket.remove()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._server.open > self._services.settings.bounds.max_connections:
            self._services.metrics.refusals.labels("overloaded").inc()
            refused = whole(new_call_id(), refusal_wording(Refusal(code="overloaded", final=False)), request.raw_path)
            refused.force_close()
            return refused
        response = await answer(request, self._services)
        if not plainly_framed(request):
            response.force_close()  # what comes behind it could be part of it
        return response
