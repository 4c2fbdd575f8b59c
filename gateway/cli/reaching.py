"""How a command reaches the running gateway: which socket, and how long it waits for an answer.

An option beats the environment, the environment beats a file that merely lies there. Nothing waits without an end: connecting and answering are
both bounded by `--timeout`.
"""

from __future__ import annotations

import functools
import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from gateway.cli.configured import settings_path, with_config
from gateway.cli.problems import Problem
from gateway.client.control import ANSWER_S, CALL_S, ControlClient, ControlError
from gateway.settings import Control, load_settings

R = TypeVar("R")

SOCKET_VARIABLE: Final = "GATEWAY_SOCKET"
CONTROL_VARIABLE: Final = "GATEWAY_CONTROL"
TOKEN_VARIABLE: Final = "GATEWAY_TOKEN"
CA_VARIABLE: Final = "GATEWAY_CA_FILE"
WAIT_MAX_S: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    socket: Path | None
    config: Path | None
    timeout_s: float | None
    """Longest wait for an answer. What closing is told to wait for (`--drain`, `--close-seconds`) comes on top."""

    def control(self) -> ControlClient:
        client = partial(ControlClient, answer_s=self.timeout_s or ANSWER_S, call_s=self.timeout_s or CALL_S)
        if address := self._tcp():
            return client(address, token=os.environ.get(TOKEN_VARIABLE, ""), ca_file=os.environ.get(CA_VARIABLE))
        return client(self.socket_path())

    def _tcp(self) -> str:
        """An address on the network, where nothing that was said on the command line comes before it."""
        address = "" if self.socket is not None or self.config is not None else os.environ.get(CONTROL_VARIABLE, "")
        if address and not address.startswith(("http://", "https://")):
            mend = f"write http://HOST:PORT or https://HOST:PORT; the path of a socket stands in {SOCKET_VARIABLE}"
            raise Problem(f"{CONTROL_VARIABLE} is no address", f"it says {address!r}", mend)
        return address

    def is_elsewhere(self) -> bool:
        """On another machine, as far as its address tells."""
        host = urlsplit(self._tcp()).hostname or "localhost"
        try:
            return not ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host != "localhost"

    def has_to_answer(self, error: ControlError) -> bool:
        """Whether this error ends a command that could do without a gateway: one is named by an option, or by the environment and something is there."""
        if self.socket is not None:
            return True
        named = self.config is None and (os.environ.get(CONTROL_VARIABLE) or os.environ.get(SOCKET_VARIABLE))
        return bool(named) and not isinstance(error.__cause__, FileNotFoundError | ConnectionRefusedError)

    def socket_path(self) -> Path:
        if self.socket is not None:
            return self.socket
        if self.config is None and (named := os.environ.get(SOCKET_VARIABLE)):
            return Path(named)
        settings = settings_path(self.config)
        return load_settings(settings).control.socket if settings else Control().socket


class _Seconds(click.FloatRange):
    """`nan` is in every range that Python is asked for."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(super().convert(value, param, ctx))
        return seconds if seconds == seconds else self.fail(f"{value} is no number of seconds.", param, ctx)


def with_gateway(command: Callable[..., R]) -> Callable[..., R]:
    """Gives a command `--socket`, `--config` and `--timeout`, and the `reach` they make."""

    @click.option(
        "--socket",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help=f"Control socket of the running gateway. [env: {SOCKET_VARIABLE}; over TCP: {CONTROL_VARIABLE}, {TOKEN_VARIABLE}]",
    )
    @with_config
    @click.option(
        "--timeout",
        "timeout_s",
        type=_Seconds(min=0, min_open=True, max=WAIT_MAX_S),
        metavar="SECONDS",
        help=f"Longest wait for an answer. [default: {ANSWER_S:g}; closing: {CALL_S:g}, for calls that an engine would not stop]",
    )
    @functools.wraps(command)
    def wrapped(*args: Any, socket: Path | None, config: Path | None, timeout_s: float | None, **kwargs: Any) -> R:
        return command(*args, reach=Reach(socket=socket, config=config, timeout_s=timeout_s), **kwargs)

    return wrapped
