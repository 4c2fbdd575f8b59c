"""What a call used, where the number came from, and how the call ended. An unknown number is None, never 0."""

from __future__ import annotations

from enum import StrEnum

from gateway.frozen import frozen


@frozen
class Usage:
    """Tokens of one call. Parts lie inside their wholes, whatever the engine's habit."""

    input_tokens: int | None = None
    """The whole prompt, cached part included."""
    output_tokens: int | None = None
    """Everything generated over all choices, reasoning included."""
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    tool_calls: int | None = None


UNKNOWN_USAGE = Usage()
NO_USAGE = Usage(input_tokens=0, output_tokens=0, tool_calls=0)


class Source(StrEnum):
    """Where a usage comes from."""

    NONE = "none"
    REPORTED = "reported"
    RUNNING = "running"
    COUNTED = "counted"
    UNKNOWN = "unknown"
    CORRECTED = "corrected"


class Outcome(StrEnum):
    """How a call that was sent ended, as the gateway saw it."""

    COMPLETED = "completed"
    LENGTH = "length"
    CAP_CUT = "cap_cut"
    CLIENT_CANCELLED = "client_cancelled"
    DEADLINE_CUT = "deadline_cut"
    CLOSED_CUT = "closed_cut"
    SHUTDOWN_CUT = "shutdown_cut"
    ENGINE_REFUSED = "engine_refused"
    ENGINE_ERROR = "engine_error"
    ENGINE_DIED = "engine_died"
    ENGINE_CLOSED = "engine_closed"
    ENGINE_TIMEOUT = "engine_timeout"
    NOT_DELIVERED = "not_delivered"
    LOST = "lost"


class MeterSource(StrEnum):
    """What a meter could read, before the rules of settling are applied."""

    REPORTED = "reported"
    ESTIMATED = "estimated"
    MISSING = "missing"


class ErrorClass(StrEnum):
    INVALID_REQUEST = "invalid_request"
    CONTEXT_OVERFLOW = "context_overflow"
    AUTH = "auth"
    NOT_FOUND = "not_found"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    MID_STREAM_ERROR = "mid_stream_error"
    ERROR_IN_200 = "error_in_200"
    TRUNCATED = "truncated"
    EMPTY_STREAM = "empty_stream"


@frozen
class Reading:
    """What a meter saw in one answer. Made by `metering.Meter.reading()`, turned into terms by `settling.settle_terms`."""

    usage: Usage
    source: MeterSource
    status: int
    """HTTP status of the engine's answer; 0 where there was none."""
    completed: bool
    """The dialect's own success marker was reached and no error was seen."""
    error_class: ErrorClass | None = None
    error_code: int | None = None
    """The error's own numeric code, e.g. 503 as the first event of a 200."""
    error_first: bool = False
    """The error was the first event of the answer: nothing had been made before it."""
    finish_reason: str | None = None
    finish_reasons: tuple[str | None, ...] = ()
    response_id: str | None = None
    model: str | None = None
    tool_call_ids: tuple[str, ...] = ()
    item_ids: tuple[str, ...] = ()
    content_seen: bool = False
    """Text, reasoning or tool arguments were delivered."""
    running_output: int | None = None
    """The engine's last running total of output tokens, where it reports one."""
    open_block: int | None = None
    """Index of a content block that was begun and not ended, in formats that have such."""
    text_bytes: int = 0
    reasoning_bytes: int = 0
    tool_argument_bytes: int = 0
    anomalies: tuple[str, ...] = ()
