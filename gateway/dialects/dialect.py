"""What a wire format must tell the gateway: what a body asks for, what an event means, and how refusals and cuts are worded in it.

One file a format; `FAMILIES` in the package maps method and path to a dialect. All pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

from gateway.accounting.usage import Reading, Usage
from gateway.dialects.barred import NOTHING, Allowed
from gateway.dialects.known import Known, KnownTools, MessagesRead
from gateway.frozen import frozen
from gateway.metering.reader import EventReader as EventReader
from gateway.metering.reader import Mark as Mark


class ReplyKind(Enum):
    FINAL = auto()
    PASSING = auto()
    PROMPT_ABOVE_CAP = auto()
    CONTEXT_OVERFLOW = auto()
    GUARD = auto()
    UNAVAILABLE = auto()
    NOT_FOUND = auto()
    UNAUTHORIZED = auto()


class Rendering(Enum):
    """How an engine makes a prompt of a body, which is how it is counted."""

    TEMPLATE = auto()
    """The model's template renders the messages."""
    PLAIN = auto()
    """The texts are the prompt (`prompt_texts`, `prompt_ids`): no template."""
    MESSAGES = auto()
    """Anthropic's form: the engine maps it onto its template, and has an endpoint that counts it."""
    RESPONSES = auto()
    """The same for OpenAI's Responses."""


@frozen
class PromptSizes:
    """What a template will be handed, where a body's own fields don't say it: sizes alone, nothing is translated."""

    messages: int
    tools: int = 0
    tool_bytes: int = 0
    """Of the tools as compact JSON."""
    tool_calls: int = 0
    call_bytes: int = 0


@frozen
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
    rendered_parts: Sequence[str]
    """Every text of the body that an engine's template can render (messages, tools, schema, template kwargs), for the byte bound and for local counting."""
    pictures: int
    has_tools: bool
    tool_names: tuple[str, ...]
    body: Mapping[str, Any]
    other_parts: tuple[str, ...] = ()
    """Of the rendered parts, those of no message, and of no tool that is known."""
    known_tools: KnownTools | None = None
    """Its tools, where a call before it held the same."""
    read: MessagesRead | None = None
    """The sizes of the others, where they were taken in reading."""
    rendering: Rendering = Rendering.TEMPLATE
    sizes: PromptSizes | None = None
    """None: `messages` and `tools` of the body are as OpenAI chat has them."""
    prompt_texts: tuple[str, ...] = ()
    """With PLAIN: the prompts, or the pieces of them, each tokenised by itself."""
    prompt_ids: int = 0
    """Tokens that the body gives as numbers."""
    prompt_begins: int | None = None
    """Prompts that begin with a text, where a tokenizer may put a token before; None: every one, if no numbers are given."""
    prompt_literal: bool = False
    """The names of special tokens in these prompts are ordinary text to the engine."""
    generates: bool = True
    """False where nothing is generated (embeddings, rerank): no cap is written, and nothing is reserved but the prompt."""
    json_lines: bool = False
    """Its stream is JSON lines, not server-sent events: nothing but its events may stand in it."""

    def let_go(self) -> None:
        """Its texts are read by nobody any more. The one change that is made to a request: a copy without them would cost as much as to make it."""
        for name, nothing in (("body", {}), ("rendered_parts", ()), ("other_parts", ()), ("prompt_texts", ())):
            object.__setattr__(self, name, nothing)


@frozen
class ForwardFacts:
    """What rewriting a body must know of the engine that gets it."""

    model: str
    """Its own name of the model."""
    cap_name: str
    """The one cap that it honours."""
    strip_fields: frozenset[str] = frozenset()
    pin_fields: Mapping[str, str] = field(default_factory=dict)
    """Always written, as JSON text."""
    asks_usage: bool = True
    """Usage in a stream must be asked for."""
    request_id_field: str = ""


NAME_MAX = 128
MESSAGE_MAX = 1_000
"""Characters of what a refusal repeats: an agent may call a field whatever it likes."""


def _sayable(text: str, most: int) -> str:
    """Bounded, and valid Unicode: it goes into answers, logs and the ledger."""
    return text[:most].encode("utf-8", "backslashreplace").decode()


class BodyError(Exception):
    """The body can't be admitted. `code` is `not_allowed`, `model_not_found` or `body_invalid`.

    `field_name`: the field at fault; `allow_key`: the policy key that would allow it.
    """

    def __init__(self, code: str, message: str, field_name: str = "", allow_key: str = "") -> None:
        message = _sayable(message, MESSAGE_MAX)
        super().__init__(message)
        self.code = code
        self.message = message
        self.field_name = _sayable(field_name, NAME_MAX)
        self.allow_key = allow_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """A refusal or error, before a dialect gives it its form."""

    kind: ReplyKind
    code: str
    message: str
    status: int | None = None
    """Overrides the dialect's own status."""
    param: str = ""
    """The body field at fault."""
    engine: str = ""
    """Kind of the engine, where its own form of the error is wanted."""
    prompt_tokens: int = 0
    context_tokens: int = 0
    """Both of a context overflow: some engines' form holds them."""


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

    def read_request(self, body: Mapping[str, Any], allowed: Allowed = NOTHING, known: Known | None = None) -> CallRequest:
        """Raises BodyError on wrong types, hosted tools, remote content, and all else by which an agent would make the engine act for it.

        `allowed`: what the policy allows all the same. `known`: what its messages begin with, read before in the
        same format under the same `allowed`.
        """

    def forward_body(self, request: CallRequest, facts: ForwardFacts, *, ceiling_per_choice: int, call_id: str = "") -> dict[str, Any]:
        """The body that is sent: one cap, the engine's own name of the model, nothing that would act behind the gateway's back."""

    def reader(self, request: CallRequest, engine: str) -> EventReader: ...

    def reply(self, wording: Wording) -> Reply:
        """A plain HTTP answer."""

    def error_event(self, wording: Wording) -> bytes:
        """The bytes that end a running stream as an error."""

    def length_end(self, reading: Reading, request: CallRequest, usage: Usage | None = None) -> bytes:
        """The bytes that end a running stream that the gateway cut at the ceiling it sent: finish `length`, usage, terminal event."""
