"""The head of an answer as bytes, for answers that go past aiohttp: its response objects cost more than all that is written of them.

Rule: what is out of the ordinary (an older HTTP, a HEAD, a status without a body) goes aiohttp's way, which knows what becomes of these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import HttpVersion11

LAST_CHUNK: Final = b"0\r\n\r\n"
_REASONS: Final = {int(status): status.phrase for status in HTTPStatus}
_NO_BODY: Final = frozenset({204, 304})
_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Raw(web.StreamResponse):
    """To aiohttp an answer that is out already: all that it still asks is whether the connection stays."""

    def __init__(self, keep_alive: bool) -> None:  # without aiohttp's own: nothing of what it prepares is used
        self._keep_alive = keep_alive

    @property
    def prepared(self) -> bool:
        return True

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return


def fits(request: web.BaseRequest, status: int) -> bool:
    return request.version == HttpVersion11 and request.method != "HEAD" and status >= 200 and status not in _NO_BODY


def head_of(status: int, headers: Mapping[str, str], *, length: int | None, keep_alive: bool) -> bytes:
    """`length` None: the body comes in chunks. Raises ValueError where a header holds what could end it."""
    lines = [f"{name}: {value}" for name, value in headers.items()]
    lines.append("Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}")
    lines.append(f"Date: {rfc822_formatted_time()}")
    if length != 0 and "Content-Type" not in headers:
        lines.append("Content-Type: application/octet-stream")
    if not keep_alive:
        lines.append("Connection: close")
    if _FORBIDDEN.search("".join(lines)) is not None:
        raise ValueError("a header holds a control character")
    return "\r\n".join((f"HTTP/1.1 {status} {_REASONS.get(status, '')}", *lines, "", "")).encode()


def chunk_of(data: bytes | bytearray) -> bytes:
    """Nothing for nothing: an empty chunk is the end of a body."""
    return b"%x\r\n%b\r\n" % (len(data), bytes(data)) if data else b""
