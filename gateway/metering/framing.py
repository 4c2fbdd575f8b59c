"""Response bytes in, frames out. Every byte that comes in goes out in exactly one frame's `raw`, in order, wherever the chunks were cut."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol


class FrameKind(Enum):
    EVENT = auto()
    COMMENT = auto()
    """Comments, blank lines, a byte order mark: no event."""
    UNFINISHED = auto()
    """The last event, cut off before its end was read. Only `end()` gives it."""


@dataclass(slots=True)
class Frame:
    raw: bytes
    """As received, its end included."""
    kind: FrameKind
    data: bytes = b""
    event: str = ""


class Framer(Protocol):
    """Bounded: an event larger than `max_event_bytes` raises EventTooLarge."""

    def feed(self, data: bytes) -> list[Frame]: ...

    def end(self) -> list[Frame]: ...


class EventTooLarge(Exception):
    """An event passed `max_event_bytes`."""
