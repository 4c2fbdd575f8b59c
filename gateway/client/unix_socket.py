"""HTTP over a Unix socket, with the standard library alone."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path


class UnixConnection(http.client.HTTPConnection):
    """Connecting and each answer take `wait_s` at most."""

    def __init__(self, path: Path, wait_s: float) -> None:
        super().__init__("localhost", timeout=wait_s)
        self._path = path
        self._wait_s = wait_s

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._wait_s)
        self.sock.connect(str(self._path))
