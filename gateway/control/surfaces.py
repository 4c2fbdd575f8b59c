"""Every place where the control plane is heard, by the settings: the Unix socket always, TCP for who presents the token, metrics and health for a scraper."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from gateway.control.api import control_application, metrics_application
from gateway.control.listening import ControlListener, TcpListener
from gateway.control.services import ControlServices
from gateway.control.token import token_required
from gateway.errors import ConfigurationError
from gateway.logs import log
from gateway.settings.declaration import TOKEN_MIN, Control
from gateway.settings.listeners import server_tls


class Surfaces:
    def __init__(self, control: Control, told: ControlServices, environment: Mapping[str, str]) -> None:
        """Raises ConfigurationError."""
        self._listeners: list[ControlListener | TcpListener] = [ControlListener(control_application(told), control.socket)]
        self.metrics: TcpListener | None = None
        self.tcp: TcpListener | None = None
        if control.listen is not None:
            app = control_application(told)
            app.middlewares.append(token_required(_token(control, environment)))
            self.tcp = TcpListener(app, control.listen, "control.listen", server_tls("control", control.tls_cert, control.tls_key))
            self._listeners.append(self.tcp)
        if control.metrics_listen is not None:
            self.metrics = TcpListener(metrics_application(told), control.metrics_listen, "control.metrics_listen")
            self._listeners.append(self.metrics)
        self._plain = control.listen is not None and control.tls_cert is None

    async def start(self) -> None:
        """Raises ConfigurationError."""
        for listener in self._listeners:
            await listener.start()
        if self.tcp is not None and self._plain and not _is_loopback(self.tcp.host):
            log.warning("the control plane speaks plain HTTP on the network: its token can be read there", extra={"fields": {"address": self.tcp.address}})

    async def stop(self) -> None:
        for listener in self._listeners:
            await listener.stop()


def _token(control: Control, environment: Mapping[str, str]) -> str:
    variable = control.token_env or ""
    token = environment.get(variable, "").strip()
    if len(token) < TOKEN_MIN:
        said = "is not set" if not token else f"holds {len(token)} characters"
        raise ConfigurationError(
            f"control.token_env: the environment variable {variable} {said}; it must hold {TOKEN_MIN} or more, e.g. of `openssl rand -hex 32`"
        )
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
