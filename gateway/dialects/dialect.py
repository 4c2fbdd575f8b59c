"""What a wire format must tell the gateway: what a body asks for, what an event means, and how refusals and cuts are worded in it.

One file a format; `FAMILIES` in the package maps method and path to a dialect. All pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntFlag, auto
from typing import Any, Protocol

from gateway.accounting.usage import Reading
from gateway.metering.framing import Frame


class ReplyKind(Enum):
    FINAL = auto()
    PASSING = auto()
    PROMPT_ABOVE_CAP = auto()
    CONTEXT_OVERFLOW = auto()
    GUARD = auto()
    UNAVAILABLE = auto()
    NOT_FOUND = auto()
    UNAUTHORIZED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """The little of a body that metering and guarding need. `body` is the parsed object, read only."""

    model: str
    stream: bool
    asked_output: int | None
    """Output ceiling that the body names, per choice: the smallest of all aliases; 0 counts as named."""
    min_output: int | None
    choices: int
    prompts: int
    usage_asked: bool
    """The client asked for usage in its stream: then the usage event is passed on."""
    rendered_parts: tuple[str, ...]
    """Every text of the body that an engine's template can render (messages, tools, schema, template kwargs), for the byte bound and for local counting."""
    pictures: int
    has_tools: bool
    tool_names: tuple[str, ...]
    body: Mapping[str, Any]


class BodyError(Exception):
    """The body can't be admitted. `code` is `not_allowed`, `model_not_found` or `body_invalid`; `field_name` the field at fault; `allow_key` the policy key that would allow it."""

    def __init__(self, code: str, message: str, field_name: str = "", allow_key: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field_name = field_name
        self.allow_key = allow_key


class Mark(IntFlag):
    """What an event means for the relay."""

    PASS = 0
    HIDE = auto()
    """The usage event that the client did not ask for."""
    TERMINAL = auto()
    """From here on everything is held back until the call is settled."""
    ERROR = auto()
    CONTENT = auto()


class EventReader(Protocol):
    """Reads the events of one answer, in order. May raise on nonsense; the meter around it does not."""

    def see(self, frame: Frame) -> Mark: ...

    def see_body(self, body: bytes) -> None:
        """A whole body that did not stream (also a JSON answer to a request that asked to stream)."""

    def reading(self, status: int, truncated: bool) -> Reading:
        """What is known so far; may be asked for at any time. `truncated`: the transport broke or ended early."""

    def delivered_text(self) -> str:
        """Text, reasoning and tool arguments delivered so far, for a count of our own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """A refusal or error, before a dialect gives it its form."""

    kind: ReplyKind
    code: str
    message: str
    status: int | None = None
    """Overrides the dialect's own status."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer in the dialect's form."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


class Dialect(Protocol):
    """One wire format."""

    name: str
    """`openai.chat`"""

    cap_names: tuple[str, ...]
    """Every alias under which a body may name its output ceiling, on any engine."""

    settings: frozenset[str]
    """Body fields that are settings: on record in full, as asked and as sent. Of every other field: name, bytes, SHA-256."""

    def read_request(self, body: Mapping[str, Any]) -> CallRequest:
        """Raises BodyError on wrong types, hosted tools, remote content, and everything else of contract part 6."""

    def reader(self, request: CallRequest, engine: str) -> EventReader: ...

    def reply(self, wording: Wording) -> Reply:
        """A plain HTTP answer."""

    def error_event(self, wording: Wording) -> bytes:
        """The bytes that end a running stream as an error."""

    def length_end(self, reading: Reading, request: CallRequest) -> bytes:
        """The bytes that end a running stream that the gateway cut at the ceiling it sent: finish `length`, usage, terminal event."""
