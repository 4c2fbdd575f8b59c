"""A request body, read and parsed once, under limits of size, time, depth and keys. What is forwarded is what was checked here."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final

import orjson
from aiohttp import web
from aiohttp.http import HttpVersion11

from gateway.dialects.known import Known
from gateway.dialects.received import KNOWN_FIELDS, Received, Written, continued, written
from gateway.dialects.structure import Structure, structure_of
from gateway.frozen import frozen

_MEMBERS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[,\[{]', re.DOTALL)
"""A text, skipped whole (also one that never ends: time stays linear), or what begins or parts members."""
_QUOTE: Final = 0x22
_WRITTEN: Final = re.compile(rb'\{"[^"\\]*":[^ \n]')
"""How a body without blanks begins: others need no try."""
_STRIDE: Final = 16_384
_TOO_DEEP: Final = "The body is nested too deeply."
_TOO_MANY: Final = "The body has more members than this gateway takes."
_TOO_LARGE: Final = "The body is larger than this gateway takes."


class BodyRefused(Exception):
    """`code` is `body_too_large` or `body_invalid`; the text is for the agent."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@frozen
class BodyBounds:
    max_bytes: int
    max_depth: int
    max_keys: int
    """Object members and list items together."""
    read_seconds: float
    """Longest that a body may take to arrive: a slow sender holds a connection, nothing else."""


async def read_body(request: web.BaseRequest, bounds: BodyBounds) -> bytes:
    """The raw body. Raises BodyRefused before more than `max_bytes` are held (or what one read of the socket brings)."""
    _check_framing(request)
    if (request.content_length or 0) > bounds.max_bytes:
        raise BodyRefused("body_too_large", _TOO_LARGE)
    if request.version >= HttpVersion11 and request.headers.get("expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer itself has not begun
    try:
        if request.content.is_eof():  # all of it is here: nothing to wait for
            raw = request.content.read_nowait()
            if len(raw) > bounds.max_bytes:
                raise BodyRefused("body_too_large", _TOO_LARGE)
            return raw
        async with asyncio.timeout(bounds.read_seconds):
            return await _pieces(request, bounds.max_bytes)
    except TimeoutError:
        raise BodyRefused("body_invalid", "The body did not arrive in time.") from None
    except web.RequestPayloadError:
        raise BodyRefused("body_invalid", "The body is not framed as its head says.") from None


async def _pieces(request: web.BaseRequest, max_bytes: int) -> bytes:
    held = bytearray()
    first = b""
    async for piece in request.content.iter_any():
        if len(first) + len(held) + len(piece) > max_bytes:
            raise BodyRefused("body_too_large", _TOO_LARGE)
        if first:
            held += piece
        else:
            first = piece
    return first + held if held else first


def plainly_framed(request: web.BaseRequest) -> bool:
    """Chunks or a length, nothing between: whoever stands before or behind must see the same end of a body."""
    codings = [value.strip().lower() for value in request.headers.getall("transfer-encoding", ())]
    return not codings or (codings == ["chunked"] and request.version >= HttpVersion11)


def _check_framing(request: web.BaseRequest) -> None:
    if not plainly_framed(request):
        raise BodyRefused("body_invalid", "The transfer encoding of the body is not one that this gateway takes.")
    if any(value.strip().lower() not in ("", "identity") for value in request.headers.getall("content-encoding", ())):
        raise BodyRefused("body_invalid", "The body is compressed; send it plain.")


class _NotPlain(ValueError):
    """The text says what is wrong."""


def parse_body(raw: bytes, bounds: BodyBounds) -> dict[str, Any]:
    """The body as an object. UTF-8 without a byte order mark, no duplicate key, no NaN, nothing that is not a finite number, nothing behind it."""
    return receive(raw, bounds).value


def receive(raw: bytes, bounds: BodyBounds, known: Sequence[Known] = ()) -> Received:
    """The same, with what was learnt of it on the way. `known`: conversations that it may continue, shorter ones first."""
    _count_members(raw, bounds.max_keys)
    value, how = _read_written(raw, known) or (_read_strictly(raw), None)
    base = how.known if how is not None else None
    if how is None or how.messages is None:
        return Received(raw=raw, value=value, structure=_structure(value, bounds), written=how)
    talk = _talk(value["messages"], base, bounds)
    tools = base.tools.structure if base is not None and base.tools is not None else _structure({"tools": value["tools"]} if "tools" in value else {}, bounds)
    rest = _structure({name: inner for name, inner in value.items() if name not in KNOWN_FIELDS}, bounds)
    whole = Structure(members=rest.members + talk.members + tools.members, plain=rest.plain and talk.plain and tools.plain)
    if whole.members > bounds.max_keys:
        raise BodyRefused("body_too_large", _TOO_MANY)
    return Received(raw=raw, value=value, structure=whole, messages=talk, tools=tools, written=how)


def _talk(messages: Sequence[Any], base: Known | None, bounds: BodyBounds) -> Structure:
    if base is None:
        return _structure({"messages": messages}, bounds)
    added = messages[base.messages :]
    if not added:
        return base.structure
    more = _structure({"messages": added}, bounds)
    return Structure(members=base.structure.members + more.members - 1, plain=base.structure.plain and more.plain)


def _structure(value: dict[str, Any], bounds: BodyBounds) -> Structure:
    found = structure_of(value, bounds.max_depth, bounds.max_keys)
    if found is None:
        raise BodyRefused("body_too_large", _TOO_DEEP)
    if found.members > bounds.max_keys:
        raise BodyRefused("body_too_large", _TOO_MANY)
    return found


def _read_written(raw: bytes, known: Sequence[Known]) -> tuple[dict[str, Any], Written] | None:
    """A body as agents' SDKs write it. That it reads back to the same bytes proves all that `_read_strictly` looks for, in a fraction of its time."""
    if _WRITTEN.match(raw) is None:
        return None
    if known and (found := continued(raw, known)) is not None:
        return found
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    how = written(raw, value)
    return (value, how) if how is not None else None


def _read_strictly(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise BodyRefused("body_too_large", _TOO_DEEP) from None
    except ValueError as error:
        raise BodyRefused("body_invalid", f"The body is not plain JSON: {_reason(error, raw)}.") from None
    if not isinstance(value, dict):
        raise BodyRefused("body_invalid", "The body must be a JSON object.")
    return value


def _count_members(raw: bytes, most: int) -> None:
    """Before parsing, which costs memory by the member: no more commas and openings than so many members can have (an empty list has one more)."""
    most = 2 * most + 1
    if _holds_fewer(raw, most):
        return
    found = 0
    for token in _MEMBERS.finditer(raw):
        if raw[token.start()] != _QUOTE:
            found += 1
            if found > most:
                raise BodyRefused("body_too_large", _TOO_MANY)


def _holds_fewer(raw: bytes, most: int) -> bool:
    """At most so many bytes are commas or openings, also those in texts. Looks no further than it must."""
    room = len(raw) - most
    for begin in range(0, len(raw), _STRIDE):
        if room <= 0:
            break
        end = min(begin + _STRIDE, len(raw))
        room -= end - begin - sum(raw.count(sign, begin, end) for sign in (b",", b"[", b"{"))
    return room <= 0


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _NotPlain("a key stands twice in one object")
    return made


def _no_constant(name: str) -> Any:
    raise _NotPlain(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    """What becomes infinite here would go on as something else than was sent."""
    value = float(text)
    if not math.isfinite(value):
        raise _NotPlain("a number in it is too large")
    return value


def _reason(error: ValueError, raw: bytes) -> str:
    """In words without digits."""
    if isinstance(error, _NotPlain):
        return str(error)
    if isinstance(error, UnicodeDecodeError):
        return "it is not valid Unicode"
    if isinstance(error, json.JSONDecodeError):
        return "it begins with a byte order mark" if raw.startswith(b"\xef\xbb\xbf") else error.msg.lower()
    return "a number in it is too long"
