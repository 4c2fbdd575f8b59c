"""A request body as it came: its bytes, what they hold, and what one look at them told that all later steps need.

Where the bytes are exactly what this program would write of their value, nothing in them can be hidden (a key that stands twice, a number that reads as
another, something behind the end), and each field's bytes are known: they are passed on and hashed as they stand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson

from gateway.dialects.field_spans import Span, field_spans


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    members: int
    """Object members and list items together."""
    plain: bool
    """No number and no name in it needs a look before it is written in canonical form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    raw: bytes
    value: dict[str, Any]
    structure: Structure
    written: Mapping[str, Span] | None = None
    """Where each field's value stands, if `raw` is what `orjson` writes of `value`, byte for byte; else None."""

    def spans(self) -> Mapping[str, Span]:
        return self.written if self.written is not None else field_spans(self.raw, self.value)

    def forwarded(self, body: Mapping[str, Any]) -> tuple[bytes, int]:
        """`body` as JSON text, and how many of its first bytes are those of `raw`. What it shares with `value` is passed on as it was written."""
        if self.written is None:
            return write(body), 0
        view = memoryview(self.raw)
        pieces: list[bytes | memoryview] = []
        shared = 0
        order = iter(self.written)
        alike = True
        try:
            for name, value in body.items():
                pieces += (b"," if pieces else b"{", orjson.dumps(name), b":")
                unchanged = name in self.written and (value is self.value[name] or (type(value) is str and value == self.value[name]))
                if unchanged:
                    pieces.append(view[slice(*self.written[name])])
                else:
                    pieces.append(orjson.dumps(value))
                alike = alike and unchanged and next(order, None) == name
                shared = self.written[name][1] if alike else shared
        except TypeError:
            return write(body), 0
        return b"".join((*pieces, b"}")) if pieces else b"{}", shared


def write(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError:  # lone surrogates and whole numbers above 64 bits: written as they were read
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()


def written_spans(raw: bytes, value: Mapping[str, Any]) -> dict[str, Span] | None:
    """Where each field's value stands, or None: `raw` is not what `orjson` writes of `value`. Field by field: no second copy of the whole is held."""
    spans: dict[str, Span] = {}
    at = 0
    try:
        for name, inner in value.items():
            head = (b"," if spans else b"{") + orjson.dumps(name) + b":"
            begin = at + len(head)
            if not raw.startswith(head, at):
                return None
            text = orjson.dumps(inner)
            if not raw.startswith(text, begin):
                return None
            at = begin + len(text)
            spans[name] = (begin, at)
    except TypeError:  # nested more deeply than it writes
        return None
    return spans if raw[at : at + 2] == b"}" else None


def structure_of(body: dict[str, Any], deepest: int, most: int) -> Structure | None:
    """None where it is nested more deeply. Stops counting members once they are more than `most`. Level by level: no recursion."""
    dicts: list[dict[str, Any]] = [body]
    lists: list[list[Any]] = []
    names: set[str] = set()
    members = 0
    plain = True
    for _depth in range(deepest):
        values = [*chain.from_iterable(map(dict.values, dicts)), *chain.from_iterable(lists)]
        names.update(*dicts)
        members += len(values)
        if members > most:
            return Structure(members=members, plain=False)
        others = [value for value in values if value.__class__ is not str]
        dicts = [value for value in others if value.__class__ is dict]
        lists = [value for value in others if value.__class__ is list]
        if plain and len(dicts) + len(lists) < len(others):
            plain = all(map(_is_plain, others))
        if not dicts and not lists:
            return Structure(members=members, plain=plain and "".join(names).isascii())
    return None


def _is_plain(value: object) -> bool:
    kind = value.__class__
    if kind is int:
        return -(2**53) < value < 2**53  # type: ignore[operator]
    return kind is not float or not (value.is_integer() or abs(value) < 1e-4)  # type: ignore[attr-defined,arg-type]
