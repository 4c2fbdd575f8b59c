"""Events that differ from one that was read in nothing but the text that they bring: known by their bytes, passed on, and read many at a time.

An engine's stream is one event over and over with another word in it. To compare bytes costs a fraction of reading each event, and what several such events say
is what one of them says with all their text in it. Rule: nothing is known of an event by its looks unless a reader has just read its like; any doubt is for the
reader.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.metering.framing import Frame, FrameKind

LATE_EVENTS: Final = 64
"""So many may wait to be read."""
ALIKE_BYTES: Final = 4_096
"""Of a chunk with its frame: larger ones are rare."""
VAIN_TRIES: Final = 8
"""Events learned from of which no like came: all that this engine sends differ."""

_NO_TEXT: Final = (b"null", b'""')
_ESCAPED: Final = re.compile(rb'(?:[^"\\]|\\["\\/bfnrt])*')
"""What may stand between two quotes, but for characters by number: half of one is none."""
_NOT_IN_JSON: Final = re.compile(rb"[\x00-\x1f]")


def _size_line(length: int) -> bytes:
    """How a chunk of so many bytes, its frame included, begins; what none begins with where there is none."""
    for digits in (1, 2, 3):
        size = length - digits - 4
        if size > 0 and len(line := b"%x\r\n" % size) == digits + 2:
            return line
    return b"\0"


_SIZE_LINES: Final = tuple(map(_size_line, range(ALIKE_BYTES + 1)))


class Alike:
    """One stream's. `names`: all keys, in quotes, under which an event of its format may bring text or counts."""

    __slots__ = ("_before", "_behind", "_event", "_head", "_head_bytes", "_names", "_tail", "_tail_bytes", "_vain")

    def __init__(self, names: tuple[bytes, ...]) -> None:
        self._names = names
        self._head = self._tail = b""
        """All of an event's chunk before and behind its text, but for the line with its size. None is known without a head."""
        self._head_bytes = self._tail_bytes = 0
        self._before = self._behind = b""
        """The same of the event's data."""
        self._event = ""
        self._vain = 0

    def learn(self, frame: Frame) -> bool:
        """From an event that a reader has just read and found to hold text, and nothing that is to be held back. False: nothing is known now."""
        raw = frame.raw
        if self._head and raw.startswith(self._head) and raw.endswith(self._tail[:-2]):
            return True
        self._head = b""
        begin = self._text_at(frame.data) if self._vain < VAIN_TRIES else 0
        place, end = raw.find(frame.data), frame.data.find(b'"', begin)
        if not begin or place < 0 or end < 0:
            return False
        self._before, self._behind, self._event = frame.data[:begin], frame.data[end:], frame.event
        self._head, self._tail = raw[: place + begin], raw[place + end :] + b"\r\n"
        self._head_bytes, self._tail_bytes = len(self._head), len(self._tail)
        self._vain += 1
        return True

    def _text_at(self, data: bytes) -> int:
        """Where the only text begins; 0 where there is not just one, or where that can't be told. Keys are found by their bytes: nothing may be escaped."""
        begin = 0
        if b"\\" in data:
            return 0
        for name in self._names:
            at = data.find(name)
            if at < 0:
                continue
            value = at + len(name)
            if data.find(name, value) >= 0 or not data.startswith(b":", value):
                return 0
            value = value + 2 if data.startswith(b" ", value + 1) else value + 1
            if data.startswith(_NO_TEXT, value):
                continue
            if begin or not data.startswith(b'"', value):
                return 0
            begin = value + 1
        return begin

    def text_of(self, chunk: bytes) -> bytes | None:
        """Of an HTTP chunk, whole as it came: the text, as JSON writes it, of the one event in it, if that is one more of the same. Else None."""
        length = len(chunk)
        if length > ALIKE_BYTES:
            return None
        line = _SIZE_LINES[length]
        if not (chunk.startswith(line) and chunk.startswith(self._head, len(line)) and chunk.endswith(self._tail)):
            return None
        text = chunk[len(line) + self._head_bytes : -self._tail_bytes]
        if not text or ((b'"' in text or b"\\" in text) and _ESCAPED.fullmatch(text) is None):
            return None
        return text

    def events_of(self, texts: list[bytes]) -> list[Frame]:
        """For a reader: one event that says what all with these texts said; where one of them is no JSON, each by itself."""
        self._vain = 0
        whole = b"".join(texts)
        if _NOT_IN_JSON.search(whole) is not None or not (whole.isascii() or all(map(_is_utf8, texts))):
            return [self._event_of(text) for text in texts]
        return [self._event_of(whole)]

    def _event_of(self, text: bytes) -> Frame:
        return Frame(b"", FrameKind.EVENT, self._before + text + self._behind, self._event)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
