"""How much of a conversation is new since the last call of its run and lane: agents send their whole context again each time.

Remembered as one number a message and one digest of all, for a bounded number of conversations. Of the bodies that may be continued the text is kept as well,
in memory alone, up to a ceiling for all of them together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from gateway.dialects.body_record import bytes_by_role
from gateway.dialects.digests import Beginnings
from gateway.dialects.known import KeptText, Known

CONVERSATIONS_MAX: Final = 4_096
"""The one not heard of for longest is forgotten: its next call counts as new."""
MESSAGES_MAX: Final = 10_000
"""Of one conversation; what lies beyond counts as new each time."""

KNOWN_LANES_MAX: Final = 1_024
KNOWN_PER_LANE: Final = 4
"""An agent and its helpers speak in turns under one key."""
KEPT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of bodies whose text is kept. The oldest is let go first: what continues it is told by its hash."""
KEPT_BODY_BYTES_MAX: Final = KEPT_BYTES_MAX // 16
"""Of one of them: it should not drive out many others."""


@dataclass(frozen=True, slots=True)
class _Seen:
    marks: tuple[int, ...] = ()
    """One a message."""
    list_bytes: int = 0
    """Of the messages as they were sent, without the bracket that ends their list."""
    digest: str | int = ""
    """Of these bytes; of a short list one number, as of a message. Empty: not known."""
    by_role: Mapping[str, int] = field(default_factory=dict)
    """Bytes of the texts of a short list."""


class Growth:
    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], _Seen] = OrderedDict()
        self._known: OrderedDict[tuple[str, str, str], tuple[Known, ...]] = OrderedDict()
        self._kept: OrderedDict[KeptText, None] = OrderedDict()
        self._kept_bytes = 0

    def known(self, run: str, lane: str, dialect: str) -> list[Known]:
        """What the next call may continue, shorter ones first."""
        return sorted(self._known.get((run, lane, dialect), ()), key=lambda one: one.list_bytes)

    def learn(self, run: str, lane: str, dialect: str, one: Known, base: Known | None) -> None:
        """`base`: what it continues, in whose place it stands from now on."""
        key = run, lane, dialect
        others = [other for other in self._known.get(key, ()) if other is not base and other.sha256 != one.sha256]
        self._known[key] = (*others[-KNOWN_PER_LANE + 1 :], one)
        self._known.move_to_end(key)
        if len(self._known) > KNOWN_LANES_MAX:
            self._known.popitem(last=False)
        if base is not None and base.text is not None:
            self._let_go(base.text)
        if one.text is not None:
            self._keep(one.text)

    def _keep(self, text: KeptText) -> None:
        if text.body_bytes > KEPT_BODY_BYTES_MAX:
            text.let_go()
            return
        self._kept[text] = None
        self._kept_bytes += text.body_bytes
        while self._kept_bytes > KEPT_BYTES_MAX:
            self._let_go(next(iter(self._kept)))

    def _let_go(self, text: KeptText) -> None:
        if text in self._kept:
            del self._kept[text]
            self._kept_bytes -= text.body_bytes
            text.let_go()

    def new_bytes(self, run: str, lane: str, messages: Sequence[object], text: Beginnings | None = None, size: int = 0) -> int:
        """Bytes, as compact JSON, of the messages behind the longest beginning that this and the last call share.

        `text` begins with the list of messages as it was sent, `size` bytes, if that is compact JSON.
        """
        before = self._seen.get((run, lane), _NOTHING)
        end = before.list_bytes
        goes_on = text is not None and before.digest != "" and text.ends_item(end) and text.known.get(end) == before.digest
        new, marks = _compared(before, messages, goes_on)
        seen = _Seen(marks, size - 1, text.sha256(size - 1)) if text is not None and len(messages) <= MESSAGES_MAX else _Seen(marks[:MESSAGES_MAX])
        self._remember(run, lane, seen)
        return new

    def of_short(self, run: str, lane: str, messages: Sequence[object], text: bytes) -> tuple[int, Mapping[str, int]]:
        """The same of a list that is too short for digests, and the bytes of its texts by role. `text`: the list as it was sent, if that is compact JSON."""
        before = self._seen.get((run, lane), _NOTHING)
        end = before.list_bytes
        goes_on = 0 < end < len(text) and text[end] in b",]" and hash(text[:end]) == before.digest
        new, marks = _compared(before, messages, goes_on)
        by_role = bytes_by_role(messages[len(before.marks) :] if goes_on else messages)
        if goes_on:
            by_role = {role: before.by_role.get(role, 0) + by_role.get(role, 0) for role in (*before.by_role, *by_role)}
        seen = _Seen(marks, len(text) - 1, hash(text[:-1]), by_role) if text and len(messages) <= MESSAGES_MAX else _Seen(marks[:MESSAGES_MAX])
        self._remember(run, lane, seen)
        return new, by_role

    def _remember(self, run: str, lane: str, seen: _Seen) -> None:
        self._seen[run, lane] = seen
        self._seen.move_to_end((run, lane))
        if len(self._seen) > CONVERSATIONS_MAX:
            self._seen.popitem(last=False)


_NOTHING: Final = _Seen()


def _compared(before: _Seen, messages: Sequence[object], goes_on: bool) -> tuple[int, tuple[int, ...]]:
    """New bytes, and the marks of all. `goes_on`: most calls; the last one's messages stand in this one, byte for byte, and only what follows needs a look."""
    if goes_on:
        texts = [_text(message) for message in messages[len(before.marks) :]]
        return sum(map(len, texts)), before.marks + tuple(map(hash, texts)) if texts else before.marks
    texts = [_text(message) for message in messages]
    marks = tuple(map(hash, texts[:MESSAGES_MAX]))
    return sum(map(len, texts[_alike(before.marks, marks) :])), marks


def _alike(before: tuple[int, ...], marks: tuple[int, ...]) -> int:
    shared = 0
    for old, new in zip(before, marks, strict=False):
        if old != new:
            break
        shared += 1
    return shared


def _text(message: object) -> bytes:
    try:
        return orjson.dumps(message)
    except TypeError:  # lone surrogates, whole numbers above 64 bits
        return repr(message).encode("utf-8", "surrogatepass")
