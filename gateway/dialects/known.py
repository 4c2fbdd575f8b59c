"""The beginning of a conversation that was read before: agents send all of it with each call, so that most of a body is known to the byte.

Sums, digests and hash states, by which a body that begins with the same bytes needs to be looked at only behind them. While there is room for its text, that
is compared; else its SHA-256 decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from gateway.dialects.digests import Hash
from gateway.dialects.structure import Structure
from gateway.frozen import frozen


@frozen
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


@frozen
class KnownTools:
    """The tools that one call held, all checked and accepted: agents send the same with each call."""

    sha256: str
    """Of their bytes."""
    structure: Structure
    """Of an object that holds nothing but them."""
    names: tuple[str, ...]
    """One a tool."""
    text_bytes: int
    """Of each as compact JSON."""
    record_sha256: str
    """Their digest as it stands on record."""


@dataclass(slots=True, eq=False)
class KeptText:
    """Bytes of a body, in memory alone and until they are let go: to compare them takes a tenth of the time that it takes to hash them."""

    messages: memoryview | None
    """Their list, without the bracket that ends it."""
    tools: memoryview | None
    behind: Hash
    """The hash behind `messages`."""
    body_bytes: int
    """Of the whole body, which is held for them."""

    def let_go(self) -> None:
        self.messages = self.tools = None


@frozen
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
    tools: KnownTools | None = None
    """What stood beside them."""
    text: KeptText | None = None


class KnownMessages(Sequence[Any]):
    """A body's messages of which the first ones are known: those are parsed for who asks for them, and hardly anybody does.

    No list, so that nothing can take the new ones for all: what writes JSON and knows of no whole ones fails.
    """

    def __init__(self, known: Known, added: list[Any], parse: Callable[[], list[Any]]) -> None:
        self._known = known.messages
        self._added = added
        self._parse = parse
        self._whole: list[Any] | None = None

    def whole(self) -> list[Any]:
        if self._whole is None:
            self._whole = self._parse()
        return self._whole

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice) and at == slice(self._known, None):
            return self._added
        return self.whole()[at]

    def __len__(self) -> int:
        return self._known + len(self._added)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.whole())

    def __repr__(self) -> str:
        return repr(self.whole())


def whole(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body with all of its messages, for what passes it on as an object."""
    messages = body.get("messages")
    return {**body, "messages": messages.whole()} if isinstance(messages, KnownMessages) else body
