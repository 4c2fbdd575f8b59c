"""Reading a body off its connection: bounded in bytes and in time, framed in one of two ways only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.streams import StreamReader
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from gateway.proxy.body import BodyBounds, BodyRefused, read_body


def bounds(max_bytes: int = 100, read_seconds: float = 10) -> BodyBounds:
    return BodyBounds(max_bytes=max_bytes, max_depth=8, max_keys=100, read_seconds=read_seconds)


def content_of(pieces: Iterable[bytes], *, ended: bool = True) -> StreamReader:
    loop = asyncio.get_running_loop()
    protocol = BaseProtocol(loop)
    protocol.transport = asyncio.Transport()  # as good as connected
    content = StreamReader(protocol, 1 << 16, loop=loop)
    for piece in pieces:
        content.feed_data(piece)
    if ended:
        content.feed_eof()
    return content


def request(pieces: Iterable[bytes], headers: Mapping[str, str] | Iterable[tuple[str, str]] = (), *, ended: bool = True, version: Any = HttpVersion11) -> Any:
    content = content_of(pieces, ended=ended)
    return make_mocked_request("POST", "/", headers=CIMultiDict(headers), version=version, payload=content)


async def refused(asked: Any, limits: BodyBounds) -> BodyRefused:
    with pytest.raises(BodyRefused) as caught:
        await read_body(asked, limits)
    return caught.value


@pytest.mark.parametrize("pieces", [[], [b"{}"], [b"{", b"}"], [b"a" * 40, b"b" * 30, b"c" * 30]])
async def test_pieces_are_put_together(pieces: list[bytes]) -> None:
    assert await read_body(request(pieces), bounds()) == b"".join(pieces)


async def test_a_body_that_says_that_it_is_too_large_is_refused_unread() -> None:
    refusal = await refused(request([], {"Content-Length": "101"}, ended=False), bounds())
    assert refusal.code == "body_too_large"


async def test_a_body_that_grows_too_large_is_refused_before_its_end() -> None:
    refusal = await refused(request([b"a" * 60, b"b" * 41], ended=False), bounds())
    assert refusal.code == "body_too_large"


async def test_a_body_that_does_not_come_is_refused_in_time() -> None:
    refusal = await refused(request([b"{"], ended=False), bounds(read_seconds=0.05))
    assert refusal.code == "body_invalid"


async def test_a_body_whose_framing_breaks_is_refused_at_once() -> None:
    asked = request([b"{"], ended=False)
    asked.content.set_exception(web.RequestPayloadError("broken"))
    assert (await refused(asked, bounds())).code == "body_invalid"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "GZIP", "gzip, identity", "x"])
async def test_a_compressed_body_is_refused(coding: str) -> None:
    assert (await refused(request([b"{}"], {"Content-Encoding": coding}), bounds())).code == "body_invalid"


async def test_a_compressed_body_is_refused_by_its_second_header_too() -> None:
    asked = request([b"{}"], [("Content-Encoding", "identity"), ("Content-Encoding", "gzip")])
    assert (await refused(asked, bounds())).code == "body_invalid"


@pytest.mark.parametrize("coding", ["identity", "Identity", " "])
async def test_a_body_that_is_said_to_be_plain_passes(coding: str) -> None:
    assert await read_body(request([b"{}"], {"Content-Encoding": coding}), bounds()) == b"{}"


@pytest.mark.parametrize("coding", ["gzip, chunked", "identity", "chunked, chunked", "xchunked", "chunked;q=1"])
async def test_any_transfer_coding_but_chunked_is_refused(coding: str) -> None:
    assert (await refused(request([b"{}"], {"Transfer-Encoding": coding}), bounds())).code == "body_invalid"


async def test_a_client_of_http_1_0_can_send_no_chunks() -> None:
    asked = request([b"{}"], {"Transfer-Encoding": "chunked"}, version=HttpVersion10)
    assert (await refused(asked, bounds())).code == "body_invalid"
    assert await read_body(request([b"{}"], {"Transfer-Encoding": "Chunked"}), bounds()) == b"{}"


class Written:
    """What went to the client before the answer."""

    def __init__(self) -> None:
        self.data = b""
        self.output_size = 0

    async def write(self, data: bytes) -> None:
        self.data += data
        self.output_size += len(data)


def expecting(value: str, length: str, version: Any) -> tuple[Any, Written]:
    writer = Written()
    headers = CIMultiDict({"Expect": value, "Content-Length": length})
    return make_mocked_request("POST", "/", headers=headers, version=version, payload=content_of([b"{}"]), writer=writer), writer


@pytest.mark.parametrize(
    ("value", "version", "told"),
    [("100-continue", HttpVersion11, True), ("100-Continue", HttpVersion11, True), ("100-continue", HttpVersion10, False), ("x", HttpVersion11, False)],
)
async def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(value: str, version: Any, told: bool) -> None:
    asked, writer = expecting(value, "2", version)
    assert await read_body(asked, bounds()) == b"{}"
    assert writer.data == (b"HTTP/1.1 100 Continue\r\n\r\n" if told else b"")
    assert writer.output_size == 0


async def test_a_client_whose_body_is_too_large_is_not_asked_for_it() -> None:
    asked, writer = expecting("100-continue", "101", HttpVersion11)
    assert (await refused(asked, bounds())).code == "body_too_large"
    assert writer.data == b""
