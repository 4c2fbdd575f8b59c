"""What is written past aiohttp says what aiohttp would say; what could end a header ends the answer instead."""

from __future__ import annotations

from typing import cast

import pytest
from aiohttp import web
from aiohttp.http import HttpVersion, HttpVersion10, HttpVersion11

from gateway.proxy.raw_answer import Raw, chunk_of, fits, head_of


class Request:
    def __init__(self, version: HttpVersion = HttpVersion11, method: str = "POST") -> None:
        self.version = version
        self.method = method


def lines_of(head: bytes) -> list[str]:
    assert head.endswith(b"\r\n\r\n")
    return [line for line in head.decode()[:-4].split("\r\n") if not line.startswith("Date: ")]


def test_a_whole_answer_has_its_length_and_a_streamed_one_comes_in_chunks() -> None:
    headers = {"Content-Type": "a/b", "x-one": "1"}
    assert lines_of(head_of(200, headers, length=3, keep_alive=True)) == ["HTTP/1.1 200 OK", "Content-Type: a/b", "x-one: 1", "Content-Length: 3"]
    assert lines_of(head_of(429, headers, length=None, keep_alive=False)) == [
        "HTTP/1.1 429 Too Many Requests",
        "Content-Type: a/b",
        "x-one: 1",
        "Transfer-Encoding: chunked",
        "Connection: close",
    ]
    assert b"\r\nDate: " in head_of(299, {}, length=0, keep_alive=True)


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\rb", "a\0b", "a\x1fb", "a\x7fb"])
@pytest.mark.parametrize("inside", ["name", "value"])
def test_a_control_character_in_a_header_is_never_written(value: str, inside: str) -> None:
    with pytest.raises(ValueError, match="control"):
        head_of(200, {value: "x"} if inside == "name" else {"x": value}, length=0, keep_alive=True)


def test_an_empty_chunk_would_end_the_body_and_is_none() -> None:
    assert chunk_of(b"") == b"" and chunk_of(bytearray(b"abc")) == b"3\r\nabc\r\n" and chunk_of(b"x" * 16) == b"10\r\n" + b"x" * 16 + b"\r\n"


@pytest.mark.parametrize(
    ("request_", "status", "does"),
    [
        (Request(), 200, True),
        (Request(), 503, True),
        (Request(HttpVersion10), 200, False),
        (Request(method="HEAD"), 404, False),
        (Request(), 204, False),
        (Request(), 304, False),
        (Request(), 101, False),
    ],
)
def test_what_is_out_of_the_ordinary_goes_aiohttps_way(request_: Request, status: int, does: bool) -> None:
    assert fits(cast(web.BaseRequest, request_), status) is does


async def test_aiohttp_sends_nothing_of_it_and_keeps_the_connection_or_not() -> None:
    kept, closed = Raw(True), Raw(True)
    closed.force_close()
    assert await kept.prepare(cast(web.BaseRequest, None)) is None
    await kept.write_eof()
    assert kept.prepared and kept.keep_alive and not closed.keep_alive
