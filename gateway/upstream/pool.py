"""The connections to one engine: opened when one is needed, kept for the next request, the youngest first.

A kept connection is thrown away before the engine would (`idle_s`): a POST on a dead one may have been read, so it can't be sent again.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections import deque
from dataclasses import dataclass
from typing import Final

import aiohappyeyeballs
from yarl import URL

from gateway.upstream.connection import EngineConnection

NEXT_ADDRESS_S: Final = 0.25
"""Where a name has several addresses: how long one is tried before the next is tried beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    host: str
    port: int
    shown: str
    """As in a Host header."""
    path: str
    """In front of every path, without a slash at its end."""
    tls: ssl.SSLContext | None


def read_address(address: str, ca_file: str | None) -> Address:
    """Raises ValueError; OSError or ssl.SSLError where `ca_file` can't be read."""
    url = URL(address)
    if url.scheme not in ("http", "https") or not url.host or url.query_string or url.fragment or url.user:
        raise ValueError("it must be http:// or https://, a host, and at most a port and a path")
    host, port = url.raw_host, url.port
    assert host is not None and port is not None
    tls = tls_context(ca_file) if url.scheme == "https" else None
    return Address(host=host, port=port, shown=url.host_port_subcomponent or host, path=url.raw_path.rstrip("/"), tls=tls)


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """The system's authorities, or only those in `ca_file`. Raises OSError or ssl.SSLError where it can't be read."""
    context = ssl.create_default_context(cafile=ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class Pool:
    """Inside a running loop. `close()` at the end."""

    def __init__(self, address: Address, idle_s: float) -> None:
        self._address = address
        self._idle_s = idle_s
        self._idle: deque[tuple[float, EngineConnection]] = deque()
        """With the loop time since which each is idle, the oldest first."""
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    def take(self) -> EngineConnection | None:
        """One that served before; None where there is none that is fit."""
        while self._idle:
            since, connection = self._idle.pop()
            if connection.usable and asyncio.get_running_loop().time() - since < self._idle_s and connection.silent:
                return connection
            connection.leave()
        return None

    async def connect(self) -> EngineConnection:
        """A new one. Raises OSError, which ssl.SSLError is too."""
        address, loop = self._address, asyncio.get_running_loop()
        sock = await aiohappyeyeballs.start_connection(await _resolved(address), happy_eyeballs_delay=NEXT_ADDRESS_S, interleave=1)
        name = address.host if address.tls is not None else None
        _, connection = await loop.create_connection(lambda: EngineConnection(self._free), sock=sock, ssl=address.tls, server_hostname=name)
        return connection

    def close(self) -> None:
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        while self._idle:
            self._idle.pop()[1].leave()

    def _free(self, connection: EngineConnection) -> None:
        if self._closed:
            connection.leave()
            return
        loop = asyncio.get_running_loop()
        self._idle.append((loop.time(), connection))
        if self._sweep is None:
            self._sweep = loop.call_later(self._idle_s, self._swept)

    def _swept(self) -> None:
        """Those idle for too long, or dead, are let go; the timer rings for the next."""
        self._sweep = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._idle and (now - self._idle[0][0] >= self._idle_s or not self._idle[0][1].usable):
            self._idle.popleft()[1].leave()
        if self._idle:
            self._sweep = loop.call_at(self._idle[0][0] + self._idle_s, self._swept)


async def _resolved(address: Address) -> list[tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[object, ...]]]:
    try:
        number = ipaddress.ip_address(address.host)
    except ValueError:
        return list(await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM))
    family = socket.AF_INET if number.version == 4 else socket.AF_INET6
    return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address.host, address.port))]
