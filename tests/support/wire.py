"""HTTP by the byte: what goes out is written by the test, and every answer that comes back is told apart by its own framing."""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass, field
from typing import Any, Self

from tests.support.raw_http import RawAnswer, unchunk


@dataclass(slots=True)
class Conversation:
    """All that came back on one connection."""

    answers: list[RawAnswer] = field(default_factory=list)
    interim: list[int] = field(default_factory=list)
    """Statuses of the 100 kind."""
    closed: bool = False
    rest: bytes = b""

    @property
    def statuses(self) -> list[int]:
        return [answer.status for answer in self.answers]


class Wire:
    """One connection to `127.0.0.1:port`. Answers to HEAD are read where `heads` says so."""

    def __init__(self, port: int, *, timeout_s: float = 10.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._timeout_s = timeout_s
        self._held = b""
        self.closed = False
        self.interim: list[int] = []

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self, *, head: bool = False) -> RawAnswer:
        """The next whole answer. Raises AssertionError where the connection ends before it."""
        while True:
            while (found := _answer(self._held, head, self.closed)) is None:
                assert not self.closed, f"closed before the answer was whole: {self._held[-300:]!r}"
                self._read(self._timeout_s)
            answer, used = found
            self._held = self._held[used:]
            if answer.status >= 200:
                return answer
            self.interim.append(answer.status)

    def is_closed(self, *, within_s: float = 5.0) -> bool:
        """The other side has ended it, and nothing more came."""
        deadline = time.monotonic() + within_s
        while not self.closed and time.monotonic() < deadline:
            self._read(max(0.01, deadline - time.monotonic()))
        return self.closed and not self._held

    def has_more(self) -> bool:
        """Something came that was not read, or the other side has ended it; waits for nothing."""
        return bool(self._held) or self.closed or bool(select.select([self._socket], [], [], 0)[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _read(self, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            raise AssertionError(f"nothing came within {timeout_s:g} s; held: {self._held[-300:]!r}") from None
        except ConnectionResetError:
            data = b""
        self.closed = not data
        self._held += data


def talk(port: int, *sends: bytes, pause_s: float = 0.0, timeout_s: float = 10.0) -> Conversation:
    """Sends, and reads until the other side closes: the last request says `Connection: close`, or is one that ends the connection."""
    conversation = Conversation()
    with Wire(port, timeout_s=timeout_s) as wire:
        for number, data in enumerate(sends):
            if number and pause_s:
                time.sleep(pause_s)
            try:
                wire.send(data)
            except (BrokenPipeError, ConnectionResetError):
                break
        while not wire.closed:
            wire._read(timeout_s)
        data = wire._held
        while (found := _answer(data, False, True)) is not None:
            answer, used = found
            data = data[used:]
            if answer.status >= 200:
                conversation.answers.append(answer)
            else:
                conversation.interim.append(answer.status)
        conversation.rest, conversation.closed = data, True
    return conversation


def _answer(data: bytes, head: bool, closed: bool) -> tuple[RawAnswer, int] | None:
    """The first answer in it and its length, or None where it is not whole."""
    top, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return None
    first, *lines = top.decode("latin-1").split("\r\n")
    answer = RawAnswer(status=int(first.split(" ", 2)[1]))
    answer.headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    used = 0
    if answer.status >= 200 and not head:
        if answer.headers.get("transfer-encoding", "").lower() == "chunked":
            answer.pieces, used, answer.complete = unchunk(rest)
        elif "content-length" in answer.headers:
            used = int(answer.headers["content-length"])
            answer.pieces, answer.complete = [rest[:used]], len(rest) >= used
        else:
            used = len(rest)
            answer.pieces, answer.complete = [rest], closed
    else:
        answer.complete = True
    answer.body = b"".join(answer.pieces)
    return (answer, len(top) + 4 + used) if answer.complete else None


def request(
    method: str, target: str, headers: dict[str, str] | list[tuple[str, str]] | None = None, body: bytes | None = None, *, close: bool = False
) -> bytes:
    """A well-formed request; `target` and headers go out as they are."""
    pairs: list[tuple[str, Any]] = [("Host", "gateway"), *(headers.items() if isinstance(headers, dict) else headers or [])]
    if body is not None:
        pairs.append(("Content-Length", len(body)))
    if close:
        pairs.append(("Connection", "close"))
    lines = "".join(f"{name}: {value}\r\n" for name, value in pairs)
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode("utf-8", "surrogateescape") + (body or b"")


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
