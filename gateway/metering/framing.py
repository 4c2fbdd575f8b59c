"""Response bytes in, frames out. Every byte that comes in goes out in exactly one frame's `raw`, in order, wherever the chunks were cut."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol


class FrameKind(Enum):
    EVENT = auto()
    COMMENT = auto()
    """Comments, blank lines, a byte order mark, a block without data: no event."""
    UNFINISHED = auto()
    """The last event, cut off before its end was read. Only `end()` gives it."""
    PIECE = auto()
    """Part of a body that is too large to be held whole, and so is never read."""


@dataclass(slots=True)
class Frame:
    raw: bytes
    """As received, its end included. Empty where the bytes lie in the frame that follows (a stray line inside another event)."""
    kind: FrameKind
    data: bytes = b""
    event: str = ""


class Framer(Protocol):
    """Bounded: an event larger than `max_event_bytes` raises EventTooLarge."""

    @property
    def idle(self) -> bool:
        """Nothing is held: what comes now is the beginning of something."""

    def feed(self, data: bytes) -> list[Frame]: ...

    def end(self) -> list[Frame]: ...


class BadAnswer(Exception):
    """The engine's answer can't be passed on. All that was fed before has been given out."""


class EventTooLarge(BadAnswer):
    """An event passed `max_event_bytes`."""


BOM: Final = b"\xef\xbb\xbf"


class Bounded:
    """Holds what is not finished. Frames found before an event that is too large still go out; the next call raises."""

    def __init__(self, max_event_bytes: int) -> None:
        self._max = max_event_bytes
        self._held = bytearray()
        self._too_large = False

    @property
    def idle(self) -> bool:
        return not (self._held or self._too_large)

    def _checked(self, frames: list[Frame], unfinished: int) -> list[Frame]:
        sizes = (len(frame.raw) for frame in frames)
        for index, size in enumerate(sizes):
            if size > self._max:
                self._too_large = True
                del frames[index:]
                break
        if unfinished > self._max:
            self._too_large = True
        if not frames:
            self._refuse()
        return frames

    def _refuse(self) -> None:
        if self._too_large:
            raise EventTooLarge(f"an event is larger than {self._max} bytes")


class NdjsonFramer(Bounded):
    """JSON lines: LF alone ends a line."""

    def __init__(self, max_event_bytes: int) -> None:
        super().__init__(max_event_bytes)
        self._scan = 0

    def feed(self, data: bytes) -> list[Frame]:
        self._refuse()
        held = self._held
        held += data
        frames: list[Frame] = []
        start = 0
        while (found := held.find(b"\n", max(start, self._scan))) >= 0:
            frames.append(_line_frame(bytes(held[start : found + 1]), FrameKind.EVENT))
            start = found + 1
        del held[:start]
        self._scan = len(held)
        return self._checked(frames, len(held))

    def end(self) -> list[Frame]:
        self._refuse()
        rest, self._held, self._scan = bytes(self._held), bytearray(), 0
        return [_line_frame(rest, FrameKind.UNFINISHED)] if rest else []


def _line_frame(raw: bytes, kind: FrameKind) -> Frame:
    data = raw.strip()
    if not data and kind is FrameKind.EVENT:
        return Frame(raw, FrameKind.COMMENT)
    return Frame(raw, kind, data)


class BodyFramer:
    """A body that does not stream: held whole up to `max_body_bytes` and given as one event; beyond that all but its last byte goes out at once, unread."""

    def __init__(self, max_body_bytes: int) -> None:
        self._max = max_body_bytes
        self._held = bytearray()
        self.too_large = False

    @property
    def idle(self) -> bool:
        return not (self._held or self.too_large)

    def feed(self, data: bytes) -> list[Frame]:
        held = self._held
        held += data
        if not self.too_large and len(held) <= self._max:
            return []
        self.too_large = True
        if len(held) < 2:
            return []
        piece = bytes(held[:-1])
        del held[:-1]
        return [Frame(piece, FrameKind.PIECE)]

    def end(self) -> list[Frame]:
        rest, self._held = bytes(self._held), bytearray()
        if self.too_large:
            return [Frame(rest, FrameKind.PIECE)] if rest else []
        return [Frame(rest, FrameKind.EVENT, rest)] if rest else []
