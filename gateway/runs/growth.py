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

CONVERSATIONS_MAX: Final = 4_096
"""The one not heard of for longest is forgotten: its next call counts as new."""
MESSAGES_MAX: Final = 10_000
"""Of one conversation; what lies beyond counts as new each time."""


@dataclass(frozen=True, slots=True)
class _Seen:
    marks: tuple[int, ...] = ()
    """One a message."""
    bytes: int = 0
    """Of the messages as they were sent, without the bracket that ends their list; 0: not known."""
    sha256: str = ""
    """Of these bytes."""


class Growth:
    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], _Seen] = OrderedDict()

    def new_bytes(self, run: str, lane: str, messages: Sequence[object], text: Beginnings | None = None) -> int:
        """Bytes, as compact JSON, of the messages behind the longest beginning that this and the last call share.

        `text`: the list of messages as it was sent, if that is compact JSON.
        """
        before = self._seen.get((run, lane), _NOTHING)
        shared = 0
        if text is not None and before.bytes and text.ends_value(before.bytes) and text.sha256(before.bytes) == before.sha256:
            # Most calls: the last one's messages stand in this one, byte for byte, and only what follows needs a look.
            shared = len(before.marks)
            added = [_text(message) for message in messages[shared:]]
            marks = before.marks + tuple(map(hash, added))
            new = sum(map(len, added))
        else:
            texts = [_text(message) for message in messages]
            marks = tuple(map(hash, texts[:MESSAGES_MAX]))
            shared = _alike(before.marks, marks)
            new = sum(map(len, texts[shared:]))
        if text is not None and len(messages) <= MESSAGES_MAX:
            end = len(text) - 1
            self._seen[run, lane] = _Seen(marks, end, text.sha256(end))
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
