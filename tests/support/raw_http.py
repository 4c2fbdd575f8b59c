"""A chat client on a bare socket: each byte that came is kept with its moment, and it can leave in each way a client can leave."""

from __future__ import annotations

import json
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any, Self

from tests.support import sse

CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Got:
    monotonic_ns: int
    unix_ns: int
    data: bytes


@dataclass(slots=True)
class RawAnswer:
    """An answer as far as it came. `body` is without the framing of chunks, `pieces` has the body in the cuts of that framing."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    pieces: list[bytes] = field(default_factory=list)
    complete: bool = False
    """The framing says that the body is whole."""

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[sse.Event]:
        return sse.events(self.body)


class RawClient:
    """One connection to `127.0.0.1:port`."""

    def __init__(self, port: int, *, timeout_s: float = 30.0) -> None:
        self.got: list[Got] = []
        self.closed = ""
        """How the other side ended: `eof`, `reset`, empty while open."""
        self._bytes = bytearray()
        self._answered = 0
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # sending

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def request(self, method: str, target: str, *, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        """`target` goes out as it is, encoded or not."""
        head = {"Host": "gateway", **({"Content-Length": str(len(body))} if body or method == "POST" else {}), **(headers or {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        self.send(f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body)

    def chat(self, key: str, *, headers: dict[str, str] | None = None, **body: object) -> None:
        """A chat call; `model` and one short message where none are given."""
        whole = {"model": "mock", "messages": [{"role": "user", "content": "hello there"}], **body}
        self.request(
            "POST", CHAT, headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json", **(headers or {})}, body=json.dumps(whole).encode()
        )

    # reading

    def answer(self, *, timeout_s: float = 30.0) -> RawAnswer:
        """The next answer, read to its end or to the connection's."""
        self._read_until(lambda: self._parsed().complete, timeout_s)
        answer = self._parsed()
        self._answered += self._length
        return answer

    def so_far(self) -> RawAnswer:
        return self._parsed()

    def read_events(self, number: int, *, timeout_s: float = 30.0) -> RawAnswer:
        """Until so many events have come (or the end); the answer as far as it came."""
        self._read_until(lambda: len(self._parsed().events) >= number or self._parsed().complete, timeout_s)
        return self._parsed()

    def read_until(self, needle: bytes, *, timeout_s: float = 30.0) -> RawAnswer:
        """Until these bytes have come in the body (or its end); the answer as far as it came."""
        self._read_until(lambda: needle in self._parsed().body or self._parsed().complete, timeout_s)
        return self._parsed()

    def read_for(self, seconds: float) -> RawAnswer:
        """Whatever comes in so much time."""
        deadline = time.monotonic() + seconds
        while not self.closed and (left := deadline - time.monotonic()) > 0:
            self._read(left)
        return self._parsed()

    def moment_of(self, needle: bytes) -> Got:
        """The read with which these bytes had come whole. Raises ValueError where they have not."""
        end = self._bytes.index(needle) + len(needle)
        seen = 0
        for got in self.got:
            seen += len(got.data)
            if seen >= end:
                return got
        raise AssertionError("unreachable")

    # leaving

    def close(self) -> int:
        """As a process that ends does; the Unix ns just before."""
        left = time.time_ns()
        self._socket.close()
        return left

    def reset(self) -> int:
        """As a machine that falls over does: RST."""
        left = time.time_ns()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()
        return left

    def half_close(self) -> int:
        """Says that it sends no more, and would still read."""
        left = time.time_ns()
        self._socket.shutdown(socket.SHUT_WR)
        return left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    # within

    _length = 0
    """Of the answer parsed last."""

    def _read_until(self, enough: Any, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not enough() and not self.closed:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no whole answer within {timeout_s:g} s; so far: {bytes(self._bytes[-500:])!r}")
            self._read(left)

    def _read(self, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            return
        except ConnectionResetError:
            self.closed = "reset"
            return
        if not data:
            self.closed = "eof"
            return
        self.got.append(Got(time.monotonic_ns(), time.time_ns(), data))
        self._bytes += data

    def _parsed(self) -> RawAnswer:
        answer = RawAnswer()
        raw = bytes(self._bytes[self._answered :])
        head, found, rest = raw.partition(b"\r\n\r\n")
        if not found:
            return answer
        first, *lines = head.decode("latin-1").split("\r\n")
        answer.status = int(first.split(" ", 2)[1])
        answer.headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        start = len(head) + 4
        if answer.headers.get("transfer-encoding", "").lower() == "chunked":
            answer.pieces, used, answer.complete = unchunk(rest)
        elif "content-length" in answer.headers:
            length = int(answer.headers["content-length"])
            answer.pieces, used, answer.complete = [rest[:length]], length, len(rest) >= length
        else:
            answer.pieces, used, answer.complete = [rest], len(rest), self.closed == "eof"
        answer.body = b"".join(answer.pieces)
        self._length = start + used
        return answer


def unchunk(data: bytes) -> tuple[list[bytes], int, bool]:
    """The chunks, how many bytes they took, and whether the last one was there."""
    pieces: list[bytes] = []
    start = 0
    while (line_end := data.find(b"\r\n", start)) >= 0:
        size = int(data[start:line_end].split(b";")[0], 16)
        end = line_end + 2 + size
        if size == 0:
            return pieces, end + 2, len(data) >= end + 2
        pieces.append(data[line_end + 2 : end])
        if len(data) < end + 2:
            break
        start = end + 2
    return pieces, start, False


def chat_once(port: int, key: str, *, headers: dict[str, str] | None = None, timeout_s: float = 30.0, **body: object) -> RawAnswer:
    """One call on a connection of its own."""
    with RawClient(port, timeout_s=timeout_s) as client:
        client.chat(key, headers={"Connection": "close", **(headers or {})}, **body)
        return client.answer(timeout_s=timeout_s)
