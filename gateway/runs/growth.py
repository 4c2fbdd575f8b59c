"""How much of a conversation is new since the last call of its run and lane: agents send their whole context again each time.

Remembered as one number a message and one digest of all, for a bounded number of conversations; nothing of their text is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.dialects.digests import Beginnings
from gateway.dialects.known import Known

CONVERSATIONS_MAX: Final = 4_096
"""The one not heard of for longest is forgotten: its next call counts as new."""
MESSAGES_MAX: Final = 10_000
"""Of one conversation; what lies beyond counts as new each time."""

KNOWN_LANES_MAX: Final = 1_024
KNOWN_PER_LANE: Final = 4
"""An agent and its helpers speak in turns under one key."""


@dataclass(frozen=True, slots=True)
class _Seen:
    marks: tuple[int, ...] = ()
    """One a message."""
    list_bytes: int = 0
    """Of the messages as they were sent, without the bracket that ends their list."""
    sha256: str = ""
    """Of these bytes; empty: not known."""


class Growth:
    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], _Seen] = OrderedDict()
        self._known: OrderedDict[tuple[str, str, str], tuple[Known, ...]] = OrderedDict()

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

    def new_bytes(self, run: str, lane: str, messages: Sequence[object], text: Beginnings | None = None, size: int = 0) -> int:
        """Bytes, as compact JSON, of the messages behind the longest beginning that this and the last call share.

        `text` begins with the list of messages as it was sent, `size` bytes, if that is compact JSON.
        """
        before = self._seen.get((run, lane), _NOTHING)
        if text is not None and before.sha256 and text.ends_item(before.list_bytes) and text.known.get(before.list_bytes) == before.sha256:
            # Most calls: the last one's messages stand in this one, byte for byte, and only what follows needs a look.
            shared = len(before.marks)
            texts = [_text(message) for message in messages[shared:]]
            marks = before.marks + tuple(map(hash, texts)) if texts else before.marks
            new = sum(map(len, texts))
        else:
            texts = [_text(message) for message in messages]
            marks = tuple(map(hash, texts[:MESSAGES_MAX]))
            shared = _alike(before.marks, marks)
            new = sum(map(len, texts[shared:]))
        if text is not None and len(messages) <= MESSAGES_MAX:
            self._seen[run, lane] = _Seen(marks, size - 1, text.sha256(size - 1))
        else:
            self._seen[run, lane] = _Seen(marks[:MESSAGES_MAX])
        self._seen.move_to_end((run, lane))
        if len(self._seen) > CONVERSATIONS_MAX:
            self._seen.popitem(last=False)
        return new


_NOTHING: Final = _Seen()


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
