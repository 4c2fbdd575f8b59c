"""Many callers at the same moment, each on a connection of its own: all are connected before the first byte of a request goes out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.support.raw_http import CHAT, RawAnswer, unchunk

MESSAGES = [{"role": "user", "content": "hello there"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One request: who asks, and with which body beside model and one short message."""

    key: str
    body: Mapping[str, object]


def crowd(port: int, callers: Iterable[Caller], *, at_once: int = 0, timeout_s: float = 60.0) -> list[RawAnswer]:
    """The answers in the order of the callers. `at_once`: no more than so many at a time; 0: all."""
    return asyncio.run(_crowd(port, list(callers), at_once, timeout_s))


async def _crowd(port: int, callers: list[Caller], at_once: int, timeout_s: float) -> list[RawAnswer]:
    go = asyncio.Event()
    turns = asyncio.Semaphore(at_once or len(callers))
    ready = 0

    async def one(caller: Caller) -> RawAnswer:
        nonlocal ready
        if at_once:
            async with turns:
                return await _call(port, caller, go=None)
        reader_writer = await asyncio.open_connection("127.0.0.1", port)
        ready += 1
        if ready == len(callers):
            go.set()
        return await _call(port, caller, go=go, connected=reader_writer)

    async with asyncio.timeout(timeout_s):
        return await asyncio.gather(*(one(caller) for caller in callers))


async def _call(
    port: int, caller: Caller, *, go: asyncio.Event | None, connected: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
) -> RawAnswer:
    reader, writer = connected or await asyncio.open_connection("127.0.0.1", port)
    if go is not None:
        await go.wait()
    body = json.dumps({"model": "mock", "messages": MESSAGES, **caller.body}).encode()
    head = {"Host": "gateway", "Authorization": f"Bearer {caller.key}", "Content-Type": "application/json", "Content-Length": len(body), "Connection": "close"}
    writer.write((f"POST {CHAT} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in head.items()) + "\r\n").encode() + body)
    try:
        return _parsed(await reader.read(-1))
    finally:
        writer.close()


def _parsed(raw: bytes) -> RawAnswer:
    head, _, rest = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    pieces, complete = ([rest], len(rest) >= int(headers.get("content-length", "0")))
    if headers.get("transfer-encoding", "").lower() == "chunked":
        pieces, _, complete = unchunk(rest)
    return RawAnswer(int(first.split(" ", 2)[1]), headers, b"".join(pieces), pieces, complete)
