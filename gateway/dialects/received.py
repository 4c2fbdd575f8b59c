"""A request body as it came: its bytes, what they hold, and what one look at them told that all later steps need.

Where the bytes are exactly what this program would write of their value, nothing in them can be hidden (a key that stands twice, a number that reads as
another, something behind the end), and each field's bytes are known: they are passed on and hashed as they stand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any, Final

import orjson

from gateway.dialects.digests import Beginnings
from gateway.dialects.field_spans import Span, field_spans
from gateway.dialects.known import KeptText, Known, KnownMessages, KnownTools
from gateway.dialects.structure import Structure
from gateway.frozen import frozen

LEAST_BYTES: Final = 8_192
"""To remember the beginning of a smaller body costs more than to look at it again."""
KNOWN_FIELDS: Final = frozenset({"messages", "tools"})
"""What may be known to a later call."""
_MESSAGES: Final = b'"messages":'
_COMMA: Final = 0x2C


@frozen
class Written:
    """Of bytes that are what `orjson` writes of their value."""

    spans: Mapping[str, Span]
    """Where each field's value stands."""
    messages: Beginnings | None = None
    """Of the messages' bytes, if there are any."""
    known: Known | None = None
    """What the messages begin with; its tools only where they are the same."""


@frozen
class Received:
    raw: bytes
    value: dict[str, Any]
    structure: Structure
    messages: Structure | None = None
    """Of an object that holds nothing but the messages, where they may be known to a later call."""
    tools: Structure | None = None
    """The same of the tools."""
    written: Written | None = None
    """None: the bytes are not what `orjson` would write."""

    @property
    def known(self) -> Known | None:
        return self.written.known if self.written is not None else None

    def known_of(self, body: Mapping[str, Any]) -> Known | None:
        """What is known of `body`, which a policy made of this one."""
        known = self.known
        if known is None or body.get("messages") is not self.value.get("messages"):
            return None
        return known if known.tools is None or body.get("tools") is self.value.get("tools") else replace(known, tools=None)

    def spans(self) -> Mapping[str, Span]:
        return self.written.spans if self.written is not None else field_spans(self.raw, self.value)

    @property
    def short_messages(self) -> bytes:
        """Their list as it stands, where it is compact JSON and too short to be remembered by its digest; else nothing."""
        if self.written is None or self.written.messages is not None or self.value.get("messages").__class__ is not list:
            return b""
        return self.raw[slice(*self.written.spans["messages"])]

    def forwarded(self, body: Mapping[str, Any]) -> tuple[bytes, int]:
        """`body` as JSON text, and where in it the messages stand as they were received (0: nowhere). What it shares with `value` is passed on as it came."""
        if self.written is None or not body:
            return write(body), 0
        view = memoryview(self.raw)
        spans = self.written.spans
        pieces: list[bytes | memoryview] = []
        messages_at = 0
        try:
            for name, value in body.items():
                pieces += (b"," if pieces else b"{", orjson.dumps(name), b":")
                if name in spans and value is self.value[name]:
                    if name == "messages":
                        messages_at = sum(map(len, pieces))
                    pieces.append(view[slice(*spans[name])])
                else:
                    pieces.append(orjson.dumps(value))
        except TypeError:
            return write(body), 0
        return b"".join((*pieces, b"}")), messages_at


def write(body: object) -> bytes:
    try:
        return orjson.dumps(body, default=_list)
    except TypeError:  # lone surrogates and whole numbers above 64 bits: written as they were read
        return json.dumps(body, separators=(",", ":"), allow_nan=False, default=_list).encode()


def _list(value: object) -> list[Any]:
    if isinstance(value, KnownMessages):
        return value.whole()
    raise TypeError(f"{type(value).__name__} is no JSON")


def written(raw: bytes, value: Mapping[str, Any]) -> Written | None:
    """None: `raw` is not what `orjson` writes of `value`. Compared field by field, so that no second copy of the whole is held."""
    spans: dict[str, Span] = {}
    beginnings: Beginnings | None = None
    at = 0
    try:
        for name, inner in value.items():
            head = (b"," if spans else b"{") + orjson.dumps(name) + b":"
            if not raw.startswith(head, at):
                return None
            begin = at + len(head)
            text = orjson.dumps(inner)
            if not raw.startswith(text, begin):
                return None
            at = begin + len(text)
            spans[name] = (begin, at)
            if name == "messages" and type(inner) is list and inner and len(raw) >= LEAST_BYTES:
                beginnings = Beginnings(memoryview(raw)[begin:])
    except TypeError:  # nested more deeply than it writes
        return None
    return Written(spans=spans, messages=beginnings) if raw[at : at + 2] == b"}" else None


def continued(raw: bytes, known: Sequence[Known]) -> tuple[dict[str, Any], Written] | None:
    """A body of which the messages begin with `known` ones, byte for byte: read without these. None where that can't be told, or where it is not `written`.

    What was known is what `orjson` writes of its messages. Where it also writes the body without them, it would write the whole so.
    """
    begin = raw.find(_MESSAGES) + len(_MESSAGES)  # a guess: `written` says where they are
    if begin < len(_MESSAGES) or len(raw) < LEAST_BYTES:
        return None
    beginnings = Beginnings(memoryview(raw)[begin:])
    base = _longest(raw, begin, beginnings, known)
    if base is None:
        return None
    left_out = base.list_bytes - len(b"[")
    behind = begin + base.list_bytes
    if goes_on := raw[behind] == _COMMA:
        left_out += 1
    shorter = raw[:begin] + b"[" + raw[begin + len(b"[") + left_out :]
    try:
        value: dict[str, Any] = orjson.loads(shorter)
    except orjson.JSONDecodeError:
        return None
    how = written(shorter, value) if type(value) is dict else None
    if how is None or how.spans.get("messages", (0, 0))[0] != begin or bool(value["messages"]) is not goes_on:
        return None
    spans = {name: (first + (left_out if first > begin else 0), last + (left_out if last > begin else 0)) for name, (first, last) in how.spans.items()}
    value["messages"] = KnownMessages(base, value["messages"], partial(_parsed, raw, spans["messages"]))
    if base.tools is not None and ("tools" not in spans or not _same_tools(raw, spans["tools"], base.tools, base.text)):
        base = replace(base, tools=None)
    return value, Written(spans=spans, messages=beginnings, known=base)


def _parsed(raw: bytes, span: Span) -> list[Any]:
    found: list[Any] = orjson.loads(memoryview(raw)[slice(*span)])
    return found


def _longest(raw: bytes, begin: int, messages: Beginnings, known: Sequence[Known]) -> Known | None:
    """Of the conversations in `known`, shorter ones first, the longest that the messages at `begin` continue."""
    found: Known | None = None
    hashed: list[Known] = []
    for one in known:
        if not messages.ends_item(one.list_bytes):
            continue
        if one.text is None or one.text.messages is None:
            hashed.append(one)
        elif raw.startswith(one.text.messages, begin):
            found = one
    if found is not None and found.text is not None:
        messages.skip(found.list_bytes, found.sha256, found.text.behind)
    for one in hashed:
        if (found is None or one.list_bytes > found.list_bytes) and messages.sha256(one.list_bytes) == one.sha256:
            found = one
    return found


def _same_tools(raw: bytes, span: Span, tools: KnownTools, text: KeptText | None) -> bool:
    first, last = span
    if text is not None and text.tools is not None:
        return last - first == len(text.tools) and raw.startswith(text.tools, first)
    return sha256(memoryview(raw)[first:last]).hexdigest() == tools.sha256
