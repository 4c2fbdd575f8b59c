"""What a meter asks of a wire format, and what an event means for whoever passes it on."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntFlag, auto
from typing import Protocol

from gateway.accounting.usage import Reading
from gateway.metering.framing import Frame


class Mark(IntFlag):
    """What an event means for the relay."""

    PASS = 0
    HIDE = auto()
    """The usage event that the client did not ask for."""
    TERMINAL = auto()
    """From here on everything is held back until the call is settled."""
    ERROR = auto()
    CONTENT = auto()


class HeadReader(Protocol):
    """A reader to which an answer's headers say something."""

    def see_head(self, headers: Mapping[str, str]) -> None: ...


class AlikeReader(Protocol):
    """A reader whose events bring text that goes on where the last one's ended."""

    text_names: tuple[bytes, ...]
    """All keys, in quotes, under which an event may bring text or counts: one that brings a single text under one of them is read like any other that differs
    from it in that text alone, and several like one with all their text."""


class EventReader(Protocol):
    """Reads the events of one answer, in order. May raise on nonsense; the meter around it does not."""

    def see(self, frame: Frame) -> Mark: ...

    def see_body(self, body: bytes) -> None:
        """A whole body that did not stream (also a JSON answer to a request that asked to stream)."""

    def reading(self, status: int, truncated: bool) -> Reading:
        """What is known so far; may be asked for at any time. `truncated`: the transport broke or ended early."""

    def running_output(self) -> int | None:
        """The engine's running total of output tokens over all choices: cheap, asked for at every event."""

    def delivered_bytes(self) -> int:
        """How long `delivered_text` is in UTF-8: cheap, asked for at every event."""

    def delivered_text(self) -> str:
        """Text, reasoning and tool arguments delivered so far, for a count of our own."""
