"""What the mock engine is told to do with a call: one `Script` a call, out of a `Playbook` for the whole server.

A script is JSON in files and over the admin path. An unknown field or a wrong type is an error: a test that misspells a fault must not pass.
"""

from __future__ import annotations

import base64
import dataclasses
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

from gateway.errors import ConfigurationError

_T = TypeVar("_T")


class UsageForm(StrEnum):
    """How a stream reports what was used. An answer in one piece reports `usage`, but for `none` and `timings`."""

    AUTO = "auto"
    """As llama.cpp: `timings` on the finish chunk; where usage is asked for, both on a chunk of their own."""
    FINAL = "final"
    """As OpenAI: a chunk of its own, only where asked for."""
    FORCED = "forced"
    """A chunk of its own, asked for or not."""
    FINISH = "finish"
    """On the finish chunk."""
    TIMINGS = "timings"
    """llama.cpp's `timings` on the finish chunk and nothing else, asked for or not."""
    CUMULATIVE = "cumulative"
    """A running total on each chunk."""
    PER_CHOICE = "per_choice"
    """One chunk a choice, each with its own output only; in one piece: the first choice's output only."""
    NEGATIVE = "negative"
    """Numbers below zero."""
    LATE = "late"
    """A chunk of its own behind `[DONE]`."""
    NONE = "none"


class Die(StrEnum):
    """How a call comes to a bad end. The kinds of the second group never get as far as a status line of 200."""

    NO = ""
    RESET = "reset"
    EOF = "eof"
    """The connection is closed in the middle of the chunked body."""
    NO_DONE = "no_done"
    """The chunked body ends well, but without finish chunk, usage and `[DONE]`."""
    ERROR_EVENT = "error_event"
    """An error in place of the next event; with `die_after` 0 it is the first."""
    HANG = "hang"
    HALF_EVENT = "half_event"
    """Half of an event, then the end of the chunked body."""

    RESET_BEFORE_HEADERS = "reset_before_headers"
    EOF_BEFORE_HEADERS = "eof_before_headers"
    HANG_BEFORE_HEADERS = "hang_before_headers"
    STATUS_400 = "400"
    """The prompt exceeds the context."""
    STATUS_401 = "401"
    STATUS_404 = "404"
    STATUS_429 = "429"
    STATUS_500 = "500"
    STATUS_503 = "503"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What one call does."""

    prompt_tokens: int | None = None
    """What is reported; None: what the mock's own template and tokenizer count."""
    output_tokens: int | None = None
    """What each choice would say; None: as much as the call asks for, else `DEFAULT_OUTPUT_TOKENS`. The call's cap comes first."""
    ignore_cap: bool = False
    minimum_output: int = 0
    """Said even when less is asked for: llama.cpp makes one token for 0."""
    cached: int = 0
    reasoning_tokens: int = 0
    """The first so many of the output."""
    text: str = ""
    """Said word for word, as far as the output goes; empty: words of its own."""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    """In place of stop, length or tool_calls."""
    argument_pieces: int = 2
    """Into how many chunks a tool call's arguments are cut."""
    chunk_tokens: int = 1
    prefill_ms: int = 0
    gap_ms: int = 0
    """Before each chunk but the first; for an answer in one piece, as many gaps as it would have chunks."""
    finish_before_done_ms: int = 0
    """Between the last event that reports something and the terminal event."""
    usage: UsageForm = UsageForm.AUTO
    comments_every: int = 0
    """A comment line before each so-manieth chunk."""
    ping_ms: int = 0
    """A comment line each so often while it prefills: 200 and headers go out first."""
    padding_bytes: int = 0
    """So much more in each chunk, in a field of its own."""
    gzip: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    die: Die = Die.NO
    die_after: int = 0
    """Tokens, over all choices, before it dies."""
    cancels_whole: bool = False
    """A call that does not stream stops when its client leaves; else it goes on to its end. A stream stops."""
    ignores_leaving: bool = False
    """It works on to its end although its client left, a stream too: what an engine does that was not told, or does not listen."""
    raw: tuple[bytes, ...] = ()
    """Sent instead of an answer, one write each, `gap_ms` apart; `die` then says how it ends (reset, eof, hang; else well).

    A stream goes in HTTP chunks, one a piece; anything else with its length.
    """
    raw_status: int = 200
    raw_type: str = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    name: str
    arguments: str = "{}"


DEFAULT_OUTPUT_TOKENS: Final = 16


@dataclass(slots=True, kw_only=True)
class Playbook:
    """The scripts of a server, and what holds for all calls. The next script: its model's list, the list, its model's own, the default."""

    default: Script = field(default_factory=Script)
    queue: deque[Script] = field(default_factory=deque)
    """`list` in JSON: used up in order, whatever the model."""
    models: dict[str, Script] = field(default_factory=dict)
    model_queues: dict[str, deque[Script]] = field(default_factory=dict)
    """In JSON a model that has a list instead of a script."""
    slots: int | None = None
    """How many calls run side by side, the others wait; None: all."""
    context_tokens: int = 131_072
    served: tuple[str, ...] = ("mock",)
    """The names that /v1/models shows; any name is served."""
    helper_ms: int = 0
    """How long /tokenize and /apply-template take."""
    helper_status: int = 200
    health_status: int = 200
    slots_status: int = 200
    """Of /slots and /metrics: 501 as llama.cpp where they are switched off."""

    def next_script(self, model: str) -> Script:
        for queue in (self.model_queues.get(model), self.queue):
            if queue:
                return queue.popleft()
        return self.models.get(model, self.default)


_NUMBERS: Final = ("context_tokens", "helper_ms", "helper_status", "health_status", "slots_status")
_SERVER_FIELDS: Final = frozenset({"default", "list", "models", "slots", "served", *_NUMBERS})
_SCRIPT_FIELDS: Final = {f.name: f for f in dataclasses.fields(Script)}


def parse_playbook(data: Any) -> Playbook:
    """From JSON: one script, a list of scripts, or an object with `default`, `list`, `models` and what holds for the server. Raises ConfigurationError."""
    if isinstance(data, list):
        return Playbook(queue=deque(parse_script(one) for one in data))
    if not isinstance(data, dict):
        raise ConfigurationError("mock engine script: an object or a list is wanted")
    own = {name: value for name, value in data.items() if name in _SERVER_FIELDS}
    rest = {name: value for name, value in data.items() if name not in _SERVER_FIELDS}
    if rest and "default" in own:
        raise ConfigurationError(f"mock engine script: {', '.join(sorted(rest))} beside `default`: move it inside")
    playbook = Playbook(default=parse_script(own.get("default", rest)), queue=deque(parse_script(one) for one in _kind("list", own.get("list", []), list)))
    for model, told in _kind("models", own.get("models", {}), dict).items():
        if isinstance(told, list):
            playbook.model_queues[model] = deque(parse_script(one) for one in told)
        else:
            playbook.models[model] = parse_script(told)
    for name in _NUMBERS:
        if name in own:
            setattr(playbook, name, _whole(name, own[name]))
    playbook.slots = None if own.get("slots") is None else _whole("slots", own["slots"])
    playbook.served = tuple(map(str, _kind("served", own.get("served", [*playbook.served]), list)))
    return playbook


def parse_script(data: Any) -> Script:
    """Raises ConfigurationError for an unknown field or a wrong type."""
    if not isinstance(data, dict):
        raise ConfigurationError(f"mock engine script: an object is wanted, not {data!r}")
    unknown = sorted(set(data) - set(_SCRIPT_FIELDS))
    if unknown:
        raise ConfigurationError(
            f"mock engine script: unknown field {unknown[0]!r}; known: {', '.join(sorted(_SCRIPT_FIELDS | dict.fromkeys(_SERVER_FIELDS)))}"
        )
    return Script(**{name: _value(name, value) for name, value in data.items()})


def _value(name: str, value: Any) -> Any:
    match name:
        case "tool_calls":
            return _tool_calls(value)
        case "raw":
            return tuple(map(_bytes, [value] if isinstance(value, str) else _kind(name, value, list)))
        case "usage" | "die":
            return _member(UsageForm if name == "usage" else Die, name, value)
        case "headers":
            return {str(key): str(text) for key, text in _kind(name, value, dict).items()}
        case "ignore_cap" | "gzip" | "cancels_whole" | "ignores_leaving":
            if not isinstance(value, bool):
                raise ConfigurationError(f"mock engine script: {name} is true or false, not {value!r}")
            return value
        case "finish_reason" | "raw_type" | "text":
            return str(value)
        case "prompt_tokens" | "output_tokens" if value is None:
            return None
    return _whole(name, value)


def _kind(name: str, value: Any, kind: type[_T]) -> _T:
    """A tuple is a list: scripts are made in Python too."""
    value = list(value) if isinstance(value, tuple) else value
    if not isinstance(value, kind):
        raise ConfigurationError(f"mock engine script: {name} is {'an object' if kind is dict else 'a list'}, not {value!r}")
    return value


def _member(kind: type[UsageForm] | type[Die], name: str, value: Any) -> UsageForm | Die:
    try:
        return kind(str(value))
    except ValueError as error:
        raise ConfigurationError(f"mock engine script: {name} = {value!r} is none of {', '.join(repr(m.value) for m in kind)}") from error


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(f"mock engine script: {name} is a whole number, not {value!r}")
    return value


def _tool_calls(value: Any) -> tuple[ToolCall, ...]:
    """A number of calls to `tool_1`, `tool_2`, …, or a list of objects with name and arguments (text)."""
    if isinstance(value, int):
        return tuple(ToolCall(name=f"tool_{number + 1}") for number in range(_whole("tool_calls", value)))
    for one in _kind("tool_calls", value, list):
        if not isinstance(one, dict) or not {"name"} <= one.keys() <= {"name", "arguments"}:
            raise ConfigurationError(f"mock engine script: a tool call is an object with name and arguments, not {one!r}")
    return tuple(ToolCall(name=str(one["name"]), arguments=str(one.get("arguments", "{}"))) for one in value)


def _bytes(piece: Any) -> bytes:
    if isinstance(piece, str):
        return piece.encode()
    try:
        return base64.b64decode(piece["base64"], validate=True)
    except (TypeError, KeyError, ValueError) as error:
        raise ConfigurationError(f'mock engine script: raw is a text, or {{"base64": …}}, or a list of these, not {piece!r}') from error
