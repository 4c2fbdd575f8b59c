"""The beginning of a conversation that was read before: agents send all of it with each call, so that most of a body is known to the byte.

Sums, digests and hash states alone, by which a body that begins with the same bytes (SHA-256) needs to be looked at only behind them. None of its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.dialects.digests import Hash
from gateway.dialects.structure import Structure


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesRead:
    """What a format read in messages. All sums: of two parts of a list they add up."""

    pictures: int = 0
    parts: int = 0
    text_bytes: int = 0
    """Of all that a template can render."""
    tool_calls: int = 0
    call_bytes: int = 0
    """Of each call as compact JSON."""

    def __add__(self, other: MessagesRead) -> MessagesRead:
        return MessagesRead(
            pictures=self.pictures + other.pictures,
            parts=self.parts + other.parts,
            text_bytes=self.text_bytes + other.text_bytes,
            tool_calls=self.tool_calls + other.tool_calls,
            call_bytes=self.call_bytes + other.call_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Messages that one call held, all checked and accepted."""

    messages: int
    list_bytes: int
    """Of their list as compact JSON, without the bracket that ends it."""
    sha256: str
    """Of these bytes."""
    structure: Structure
    """Of an object that holds nothing but them."""
    read: MessagesRead
    by_role: Mapping[str, int]
    written: Mapping[bytes, Hash] = field(default_factory=dict)
    """Digest of what stood before the messages -> the hash behind them, for the body as received and as sent."""
    canonical: Mapping[bytes, Hash] = field(default_factory=dict)
    """The same of its canonical form."""
