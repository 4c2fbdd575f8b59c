"""How much of a conversation is new since the last call of its run and lane: agents send their whole context again each time.

Remembered as one number a message, for a bounded number of conversations; nothing of their text is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import orjson

CONVERSATIONS_MAX: Final = 4_096
"""The one not heard of for longest is forgotten: its next call counts as new."""
MESSAGES_MAX: Final = 10_000
"""Of one conversation; what lies beyond counts as new each time."""


class Growth:
    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], tuple[int, ...]] = OrderedDict()

    def new_bytes(self, run: str, lane: str, messages: Sequence[object]) -> int:
        """Bytes, as compact JSON, of the messages behind the longest beginning that this and the last call share."""
        texts = [_text(message) for message in messages]
        marks = tuple(hash(text) for text in texts[:MESSAGES_MAX])
        before = self._seen.get((run, lane), ())
        shared = 0
        for old, new in zip(before, marks, strict=False):
            if old != new:
                break
            shared += 1
        self._seen[run, lane] = marks
        self._seen.move_to_end((run, lane))
        if len(self._seen) > CONVERSATIONS_MAX:
            self._seen.popitem(last=False)
        return sum(map(len, texts[shared:]))


def _text(message: object) -> bytes:
    try:
        return orjson.dumps(message)
    except TypeError:  # lone surrogates, whole numbers above 64 bits
        return repr(message).encode("utf-8", "surrogatepass")
