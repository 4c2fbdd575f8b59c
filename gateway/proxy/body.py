"""A request body, read and parsed once, under limits of size, time, depth and keys. What is forwarded is what was checked here."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from aiohttp import web


class BodyRefused(Exception):
    """`code` is `body_too_large` or `body_invalid`; the text is for the agent."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyBounds:
    max_bytes: int
    max_depth: int
    max_keys: int
    """Object members and list items together."""
    read_seconds: float
    """Longest that a body may take to arrive: a slow sender holds a connection, nothing else."""


async def read_body(request: web.BaseRequest, bounds: BodyBounds) -> bytes:
    """The raw body. Raises BodyRefused before more than `max_bytes` are held."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise BodyRefused("body_invalid", "The body is compressed; send it plain.")
    if (request.content_length or 0) > bounds.max_bytes:
        raise BodyRefused("body_too_large", "The body is larger than this gateway takes.")
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(bounds.read_seconds):
            async for piece in request.content.iter_any():
                size += len(piece)
                if size > bounds.max_bytes:
                    raise BodyRefused("body_too_large", "The body is larger than this gateway takes.")
                pieces.append(piece)
    except TimeoutError:
        raise BodyRefused("body_invalid", "The body did not arrive in time.") from None
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def parse_body(raw: bytes, bounds: BodyBounds) -> dict[str, Any]:
    """The body as an object. UTF-8 without a byte order mark, no duplicate key, no NaN, nothing behind it."""
    try:
        text = raw.decode("utf-8")
        parsed = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise BodyRefused("body_too_large", "The body is nested too deeply.") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise BodyRefused("body_invalid", f"The body is not plain JSON: {_reason(error)}.") from None
    if not isinstance(parsed, dict):
        raise BodyRefused("body_invalid", "The body must be a JSON object.")
    _check_shape(parsed, bounds)
    return parsed


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _reason(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg.lower()
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)[:120]


def _check_shape(parsed: dict[str, Any], bounds: BodyBounds) -> None:
    level: list[Any] = [parsed]
    keys = 0
    for _depth in range(bounds.max_depth):
        below: list[Any] = []
        for node in level:
            children = node.values() if isinstance(node, dict) else node
            keys += len(node)
            below += [child for child in children if isinstance(child, dict | list)]
        if keys > bounds.max_keys:
            raise BodyRefused("body_too_large", "The body has more members than this gateway takes.")
        if not below:
            return
        level = below
    raise BodyRefused("body_too_large", "The body is nested too deeply.")
