"""Where the value of each top-level field stands in a body's bytes.

The body has been parsed before, so its fields and their order are known: values that hold others are skipped by looking for the next field's name, which costs
next to nothing for a conversation of half a megabyte. Where that is not certain (a name written with escapes), every token is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

import orjson

Span = tuple[int, int]
_KEY: Final = re.compile(rb'[\s,]*"([^"\\]*)"\s*:\s*')
_SCALAR: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[^\s,}\]]+', re.DOTALL)
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},:]', re.DOTALL)
_BLANK: Final = b" \t\r\n"
_OPENS: Final = b"[{"
_QUOTE: Final = 0x22
_COLON: Final = 0x3A
TRIED_MAX: Final = 4
"""Each try reads the value from its beginning: where a name stands a thousand times inside, every token is read once instead."""


def field_spans(raw: bytes, body: Mapping[str, object]) -> dict[str, Span]:
    """`raw` is one whole object without duplicate names; `body` is what it holds."""
    spans: dict[str, Span] = {}
    names = list(body)
    at = raw.find(b"{") + 1
    for position, name in enumerate(names):
        key = _KEY.match(raw, at)
        if key is None or key[1] != name.encode("utf-8", "surrogatepass"):
            return spans_by_token(raw)
        begin = key.end()
        if raw[begin] in _OPENS:
            end = _end_before(raw, begin, names[position + 1] if position + 1 < len(names) else None)
        else:
            scalar = _SCALAR.match(raw, begin)
            end = scalar.end() if scalar is not None else -1
        if end < 0:
            return spans_by_token(raw)
        spans[name] = (begin, end)
        at = end
    return spans


def _end_before(raw: bytes, begin: int, following: str | None) -> int:
    """The end of a list or object that stands before the field `following`; -1: it was not found so.

    A quote inside a text is escaped, so the name can only be found as a name; but it may be one inside, and the field itself may be spelled with escapes. A
    list or object has one end at which it is whole.
    """
    if following is None:
        return _trimmed(raw, begin, raw.rindex(b"}"))
    name = b'"' + following.encode("utf-8", "surrogatepass") + b'"'
    tried = 0
    at = raw.find(name, begin)
    while at >= 0 and tried < TRIED_MAX:
        end = _trimmed(raw, begin, at)
        after = at + len(name)
        if raw[end - 1] == 0x2C and raw[after : after + 16].lstrip(_BLANK)[:1] == b":":
            end = _trimmed(raw, begin, end - 1)
            if _whole(raw[begin:end]):
                return end
            tried += 1
        at = raw.find(name, after)
    return -1


def _whole(value: bytes) -> bool:
    try:
        orjson.loads(value)
    except ValueError:
        return False
    return True


def _trimmed(raw: bytes, begin: int, end: int) -> int:
    while end > begin and raw[end - 1] in _BLANK:
        end -= 1
    return end


def spans_by_token(raw: bytes) -> dict[str, Span]:
    """The same, by reading every token."""
    spans: dict[str, Span] = {}
    depth = 0
    name: str | None = None
    begin = 0
    for token in _TOKEN.finditer(raw):
        first = raw[token.start()]
        if depth > 1:
            depth += (first in _OPENS) - (first in b"]}")
        elif first in _OPENS:
            depth += 1
        elif first in b",}":
            if name is not None:
                start = begin
                while raw[start] in _BLANK:
                    start += 1
                spans[name] = (start, _trimmed(raw, start, token.start()))
            name = None
        elif first == _QUOTE and name is None:
            name = json.loads(token[0])
            begin = 0
        elif first == _COLON and begin == 0:
            begin = token.end()
    return spans
