"""The one form in which an entry is hashed (RFC 8785) and the hash that ties it to the one before it in its chain.

What stands in an entry is objects with ASCII keys, lists, valid Unicode strings, whole numbers below 2**53 and booleans. Within that, sorted keys and
orjson's escapes are RFC 8785 to the byte (tests hold it against another implementation). An unknown value is an absent key: null is an error.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import cast

import orjson

FIRST_HASH = bytes(32)
"""What the first entry of a campaign's chain, and of `gateway`, is tied to."""

INTEGER_MAX = 2**53 - 1
DEPTH_MAX = 64

_PLAIN = frozenset((str, int, bool))

_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_NOT_UNICODE = re.compile("[\ud800-\udfff\ufffd]")


def canonical(value: object) -> bytes:
    """Canonical JSON. Raises ValueError for what may not stand in an entry."""
    check(value)
    return encode(value)


def check(value: object, depth: int = 0) -> None:
    """Raises ValueError for what `encode` would let pass though it may not stand in an entry."""
    kind = type(value)
    if kind in _PLAIN:
        return  # surrogates and numbers of 2**53 or more are refused by encode()
    if depth > DEPTH_MAX:
        raise ValueError("nested too deep for an entry")
    if kind is dict or isinstance(value, Mapping):
        for key, inner in cast("Mapping[object, object]", value).items():
            if type(key) is not str or not key.isascii():
                raise ValueError(f"an entry's keys are ASCII strings, not {key!r}")
            if type(inner) not in _PLAIN:
                check(inner, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            if type(inner) not in _PLAIN:
                check(inner, depth + 1)
    elif not isinstance(value, str):  # a StrEnum is its string
        raise ValueError(f"{kind.__name__} may not stand in an entry")


def encode(value: object) -> bytes:
    """Canonical JSON of what is known to be allowed but for surrogates and large numbers, which raise ValueError."""
    try:
        return orjson.dumps(value, default=_plain, option=_OPTIONS)
    except TypeError as error:
        raise ValueError(f"may not stand in an entry: {error}") from error


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} may not stand in an entry")


def escape(text: str | bytes) -> str:
    """Text that is valid Unicode for certain, for what came from outside.

    Bytes that are not UTF-8 are first read with `surrogateescape` (byte 0xFF becomes U+DCFF). Then each lone surrogate, and each U+FFFD so that nothing
    is ambiguous, becomes U+FFFD and its four hex digits: byte 0xFF stands as U+FFFD and `dcff`. `unescape` gives back what came.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    return _NOT_UNICODE.sub(lambda found: f"\ufffd{ord(found.group()):04x}", text)


def unescape(text: str) -> str:
    """What `escape` was given, bytes as `surrogateescape` reads them."""
    return re.sub("\ufffd([0-9a-f]{4})", lambda found: chr(int(found.group(1), 16)), text)


def link(previous_hash: bytes, body: bytes) -> bytes:
    """The hash of an entry: over the 32 bytes of the one before it and its canonical form."""
    return hashlib.sha256(previous_hash + body).digest()


def decode(body: bytes) -> dict[str, object]:
    content: dict[str, object] = orjson.loads(body)
    return content
