"""What came over the wire: a relay on the gateway's address in the agent's sight, that passes each byte on at once and keeps both directions.

The requests are then cut out of what was kept by their own framing, each with the status that it was answered with.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Self

from tests.support.raw_http import unchunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One request as it came, and how it was answered."""

    at_ms: int
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    status: int = 0
    """0: no answer was seen."""
    code: str = ""
    """The error's code, where the answer was one."""

    @property
    def refused_finally(self) -> bool:
        return self.code in ("run_budget_reached", "window_over", "run_closed", "prompt_above_cap") or self.code == "billing_error"


@dataclass(slots=True)
class _Kept:
    begun_ms: int
    up: bytearray = field(default_factory=bytearray)
    down: bytearray = field(default_factory=bytearray)
    moments: list[tuple[int, int]] = field(default_factory=list)
    """(bytes up so far, ms)."""


class Recorder:
    """Listens in the namespace of the thread that starts it."""

    def __init__(self, address: str, port: int, to_port: int) -> None:
        self._to = ("127.0.0.1", to_port)
        self._server = socket.create_server((address, port), backlog=128)
        self._kept: list[_Kept] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def heard(self) -> list[Heard]:
        """In order of arrival."""
        return sorted((one for kept in self._kept for one in _requests(kept)), key=lambda one: one.at_ms)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            there = socket.create_connection(self._to)
            for one in (client, there):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            kept = _Kept(_now_ms())
            self._kept.append(kept)
            threading.Thread(target=self._pass, args=(client, there, kept, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(there, client, kept, False), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, kept: _Kept, up: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if up:
                    kept.moments.append((len(kept.up), _now_ms()))
                    kept.up += data
                else:
                    kept.down += data
                target.sendall(data)
        except OSError:
            pass
        try:
            target.shutdown(socket.SHUT_WR)
        except OSError:
            target.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _requests(kept: _Kept) -> list[Heard]:
    data, answers = bytes(kept.up), bytes(kept.down)
    found = []
    start = 0
    while (end := data.find(b"\r\n\r\n", start)) >= 0:
        first, *lines = data[start:end].decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        length = int(next((value for name, value in headers if name.lower() == "content-length"), "0"))
        at_ms = next((ms for size, ms in reversed(kept.moments) if size <= start), kept.begun_ms)
        body = data[end + 4 : end + 4 + length]
        status, code, used = _answer(answers, head=method == "HEAD")
        answers = answers[used:]
        found.append(Heard(at_ms=at_ms, method=method, target=target, headers=headers, body=body, status=status, code=code))
        start = end + 4 + length
    return found


def _answer(data: bytes, *, head: bool) -> tuple[int, str, int]:
    """Status, the error's code, and how many bytes it took."""
    top, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return 0, "", len(data)
    first, *lines = top.decode("latin-1").split("\r\n")
    status = int(first.split(" ")[1])
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if status < 200:
        return _answer(rest, head=head)
    body, used = b"", 0
    if headers.get("transfer-encoding", "").lower() == "chunked":
        pieces, used, _ = unchunk(rest)
        body = b"".join(pieces)
    elif not head:
        used = int(headers.get("content-length", "0"))
        body = rest[:used]
    return status, _code(status, body), len(top) + 4 + used


def _code(status: int, body: bytes) -> str:
    if status < 400:
        return ""
    try:
        said: Any = json.loads(body)
    except ValueError:
        return ""
    error = said.get("error") if isinstance(said, dict) else None
    return str(error.get("code") or error.get("type") or "") if isinstance(error, dict) else ""
