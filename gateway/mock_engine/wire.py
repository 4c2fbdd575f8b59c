"""HTTP/1.1 as the mock engine speaks it: a protocol of its own, because each byte, cut and ugly end must be in our hands.

A client that closes its side, wholly or by half, has left: that is heard at once, in the middle of an answer too.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, cast

MAX_HEAD_BYTES: Final = 256 * 1024
MAX_BODY_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str:
        """The first of that name, else empty."""
        return next((value for key, value in self.headers if key.lower() == name), "")


Handler = Callable[["Connection", Request], Awaitable[None]]


class Connection(asyncio.Protocol):
    """One client. `left` says how it went: `eof` or `reset`; empty while it is there."""

    def __init__(self, handler: Handler, everyone: set[Connection]) -> None:
        self._handler = handler
        self._everyone = everyone
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._closing = False
        self._continued = False
        self._on_left: Callable[[], None] | None = None
        self.left = ""

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._everyone.add(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    def eof_received(self) -> bool:
        self._went("eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._everyone.discard(self)
        self._room.set()
        self._went("reset" if exc is not None else "eof")

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    # what the engine calls

    def on_left(self, callback: Callable[[], None] | None) -> None:
        """Called once when the client leaves; at once where it has left."""
        self._on_left = callback
        if callback is not None and self.left:
            callback()

    def head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}", *(f"{name}: {value}" for name, value in headers.items())]
        self.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    def write(self, data: bytes) -> None:
        if not self.left and not self._transport.is_closing():
            self._transport.write(data)

    async def drained(self) -> None:
        """Gives the loop a turn, and waits where the client does not read."""
        await asyncio.sleep(0)
        await self._room.wait()

    def close(self) -> None:
        """What is written goes out first."""
        self._closing = True
        self._transport.close()

    def reset(self) -> None:
        """The client sees a connection reset."""
        self._closing = True
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def stop(self) -> asyncio.Task[None] | None:
        """At the server's end: the call that runs is given up."""
        self._closing = True
        self._transport.abort()
        if self._task is not None:
            self._task.cancel()
        return self._task

    def _went(self, how: str) -> None:
        if self.left or self._closing:
            return
        self.left = how
        if self._on_left is not None:
            self._on_left()

    def _next(self) -> None:
        if self._task is not None or self._closing:
            return
        try:
            taken = parse_request(self._buffer)
        except ValueError as error:
            self.head(400, {"Content-Length": str(len(str(error))), "Connection": "close"})
            self.write(str(error).encode())
            self.close()
            return
        if taken is None:
            return
        request, used = taken
        if request is None:  # the client waits for our word before it sends the body
            if not self._continued:
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._continued = True
            return
        self._continued = False
        del self._buffer[:used]
        self._task = asyncio.get_running_loop().create_task(self._run(request))

    async def _run(self, request: Request) -> None:
        try:
            await self._handler(self, request)
        except asyncio.CancelledError:
            if not self.left and not self._closing:
                raise
        finally:
            self._task = None
            self._on_left = None
            if request.header("connection").lower() == "close":
                self.close()
        self._next()


def parse_request(buffer: bytearray) -> tuple[Request | None, int] | None:
    """A whole request and its length; None where more must come; (None, 0) where the client wants `100 Continue`. Raises ValueError for what is not HTTP."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        if len(buffer) > MAX_HEAD_BYTES:
            raise ValueError("head too long")
        return None
    first, *lines = buffer[:end].decode("latin-1").split("\r\n")
    try:
        method, path, _ = first.split(" ")
    except ValueError as error:
        raise ValueError("no request line") from error
    headers = tuple((name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines))
    by_name = {name.lower(): value for name, value in headers}
    start = end + 4
    chunked = by_name.get("transfer-encoding", "").lower() == "chunked"
    taken = _chunked(buffer, start) if chunked else _counted(buffer, start, int(by_name.get("content-length", "0")))
    if taken is None:
        return (None, 0) if by_name.get("expect", "").lower() == "100-continue" else None
    return Request(method=method, path=path, headers=headers, body=taken[0]), taken[1]


def _counted(buffer: bytearray, start: int, length: int) -> tuple[bytes, int] | None:
    if length > MAX_BODY_BYTES:
        raise ValueError("body too long")
    return (bytes(buffer[start : start + length]), start + length) if len(buffer) >= start + length else None


def _chunked(buffer: bytearray, start: int) -> tuple[bytes, int] | None:
    body = bytearray()
    while (line_end := buffer.find(b"\r\n", start)) >= 0:
        size = int(bytes(buffer[start:line_end]).split(b";")[0], 16)
        data_end = line_end + 2 + size
        if len(buffer) < data_end + 2:
            return None
        if size == 0:
            return bytes(body), data_end + 2
        body += buffer[line_end + 2 : data_end]
        start = data_end + 2
    return None


_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
