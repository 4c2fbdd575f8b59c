"""Where the control plane is heard: a Unix socket that its owner alone can open; where it is configured, TCP, with a token or for metrics and health alone."""

from __future__ import annotations

import ssl
from pathlib import Path

from aiohttp import web

from gateway.errors import AddressUnavailable
from gateway.settings.listeners import BoundSocket, in_words

SHUTDOWN_S = 5.0
"""How long an answer that is under way may take when the gateway stops."""


class ControlListener:
    """The application on its Unix socket."""

    def __init__(self, app: web.Application, path: Path) -> None:
        self.path = path
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
        self._socket: BoundSocket | None = None

    async def start(self) -> None:
        """Raises ConfigurationError where the socket can't be made or another gateway listens there."""
        self._socket = BoundSocket(self.path, "control.socket")
        try:
            await self._runner.setup()
            await web.SockSite(self._runner, self._socket.bound).start()
        except BaseException:
            self._socket.bound.close()
            await self.stop()
            raise

    async def stop(self) -> None:
        await self._runner.cleanup()
        if self._socket is not None:
            self._socket.remove()


class TcpListener:
    """An application on TCP. `named`: the setting that says where, for errors."""

    def __init__(self, app: web.Application, listen: str, named: str, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = listen.rpartition(":")
        self.host = host.strip("[]")
        self.port = int(port)
        """Once it is started: the one it got, where 0 was asked for."""
        self._named = named
        self._tls = tls
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    async def start(self) -> None:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self.host, self.port, ssl_context=self._tls).start()
        except OSError as error:
            await self._runner.cleanup()
            raise AddressUnavailable(f"{self._named}: {self.host}:{self.port}: {in_words(error)}") from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()
