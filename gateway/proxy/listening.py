"""The data listener: aiohttp's low-level server, one handler, nothing but declared APIs behind it."""

from __future__ import annotations

from aiohttp import web
from aiohttp.http import HttpVersion11

from gateway.dialects.openai_replies import reply as openai_reply
from gateway.errors import ConfigurationError
from gateway.proxy.exchange import answer
from gateway.proxy.refusing import refusal_wording
from gateway.services import Services
from gateway.upstream.call import Refusal

KEEP_ALIVE_S = 75.0
"""An agent's idle connection is kept this long."""
HEADER_BYTES_MAX = 16 * 1024
"""Of one header line or of the request line."""
READ_BUFFER_BYTES = 1 << 20
"""Large bodies come in few pieces."""
LINGER_S = 5.0
"""How long the rest of a refused body is read, so that the refusal arrives."""


class DataListener:
    def __init__(self, services: Services, listen: str) -> None:
        host, _, port = listen.rpartition(":")
        self.host, self.port = host.strip("[]"), int(port)
        self._services = services
        self._server = web.Server(
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
        self._runner = web.ServerRunner(self._server, shutdown_timeout=1.0)
        self._site: web.TCPSite | None = None

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    async def start(self) -> None:
        """Raises ConfigurationError where it can't listen there."""
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, self.host, self.port, backlog=1024)
        try:
            await self._site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise ConfigurationError(
                f"data.listen: can't listen on {self.host}:{self.port}: {error.strerror}; choose another address, or end what listens there"
            ) from error
        self.port = self._runner.addresses[0][1]

    async def stop_accepting(self) -> None:
        if self._site is not None:
            await self._site.stop()

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if len(self._server.connections) > self._services.settings.bounds.max_connections:
            reply = openai_reply(refusal_wording(Refusal(code="overloaded", final=False)))
            refused = web.Response(status=reply.status, body=reply.body, content_type=reply.content_type)
            refused.force_close()
            return refused
        response = await answer(request, self._services)
        if request.version < HttpVersion11:
            response.force_close()
        return response
