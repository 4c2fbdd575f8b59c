"""How one call is settled: contract part 4 as one pure function.

From what the meter read, how the call ended and what was reserved come outcome, source, usage, charge and flags: the first row of the table that fits. What the
agent can cause is charged, what the engine caused is not; an unknown number is None, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, Literal

from gateway.accounting.quantity import Amounts
from gateway.accounting.usage import NO_USAGE, UNKNOWN_USAGE, ErrorClass, MeterSource, Outcome, Reading, Source, Usage
from gateway.frozen import frozen


class How(Enum):
    """How the gateway's side of a call ended."""

    ENDED = auto()
    """The engine's answer was read to its end, or to a second after its terminal event."""
    CLIENT_LEFT = auto()
    """Before the terminal event. (After it, the client had a complete answer: ENDED.)"""
    CUT = auto()
    """By the gateway."""
    FAILED = auto()
    """The engine could not be used any further, or its body broke off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    how: How
    cut: Outcome | None = None
    """With CUT: `cap_cut`, `deadline_cut`, `closed_cut`, `shutdown_cut`."""
    failure: str = ""
    """With FAILED: `closed`, `died`, `timeout`, `unreachable`."""
    drained: bool = False
    """A call that does not stream was read to its end after its client left or it was cut."""


ENDED: Final = Ending(how=How.ENDED)


@frozen
class Held:
    """The reservation, and what the call was sent with."""

    prompt_tokens: int
    prompt_exact: bool
    """Counted, not bounded."""
    ceiling: int
    """Output over all choices and prompts, as sent."""
    context_tokens: int | None = None
    """The model's; None where it is not known."""
    choices: int = 1
    """Choices x prompts."""
    prompts: int = 1
    """Each has a context of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCount:
    """Our own count of the output that was delivered."""

    output_tokens: int
    counted_by: str


@frozen
class ChargeRules:
    """`[charging]` of the policy."""

    cut_streams: Literal["known", "reserved"] = "known"
    engine_errors: Literal["prompt", "reserved", "nothing"] = "prompt"


CHARGE_RULES: Final = ChargeRules()


@frozen
class Terms:
    """What goes into the settlement."""

    outcome: Outcome
    source: Source
    usage: Usage
    charge: Amounts
    counted_by: str = ""
    flags: tuple[str, ...] = ()


_WORK_REFUSED: Final = frozenset({503, 529})
_FAILURES: Final = {"closed": Outcome.ENGINE_CLOSED, "timeout": Outcome.ENGINE_TIMEOUT}
_ERRORS: Final = frozenset({ErrorClass.MID_STREAM_ERROR, ErrorClass.ERROR_IN_200, ErrorClass.SERVER_ERROR})
_BROKEN_ENDS: Final = frozenset({"error", "abort"})
"""Finish reasons by which an engine says that it failed."""
_LENGTH_WORDS: Final = frozenset({"length", "max_tokens", "max_output_tokens", "limit", "model_context_window_exceeded"})
"""Finish reasons, one format's or another's, that say that the output reached its ceiling."""
FIRST_PROMPT_ONLY: Final = "usage_first_prompt_only"
"""Anomaly: several prompts were sent, and the input that was reported is the first one's."""
UNREADABLE: Final = frozenset({"bad_json_body", "body_too_large"})
"""Anomalies of a reading that leave a whole answer unread."""


def settle_terms(
    reading: Reading,
    ending: Ending,
    *,
    stream: bool,
    held: Held,
    own: OwnCount | None = None,
    rules: ChargeRules = CHARGE_RULES,
) -> Terms:
    """`stream`: the answer streams. `own`: needed where `needs_own_count` says so."""
    reading, flags = _credible(reading, held)
    if _refused_before_work(reading):
        return Terms(outcome=Outcome.ENGINE_REFUSED, source=Source.NONE, usage=NO_USAGE, charge=Amounts(requests=1), flags=flags)
    source, usage, charge, counted_by = _row(reading, ending, stream, held, own, rules)
    outcome = _outcome(reading, ending, source, usage, held)
    if usage.tool_calls:
        charge = replace(charge, tool_calls=usage.tool_calls)
    flags = (*flags, *_crossed(source, usage, charge, held))
    return Terms(outcome=outcome, source=source, usage=usage, charge=charge, counted_by=counted_by, flags=flags)


def needs_own_count(reading: Reading, held: Held) -> bool:
    """The engine's final counters are not to be had, and something was delivered that can be counted."""
    credible, _ = _credible(reading, held)
    return credible.source is not MeterSource.REPORTED and credible.content_seen and not _refused_before_work(credible)


Row = tuple[Source, Usage, Amounts, str]


def _row(reading: Reading, ending: Ending, stream: bool, held: Held, own: OwnCount | None, rules: ChargeRules) -> Row:
    """The table, without its first row."""
    usage = reading.usage
    if reading.source is MeterSource.REPORTED and usage.input_tokens is not None and usage.output_tokens is not None:
        return Source.REPORTED, usage, _amounts(usage.input_tokens, usage.output_tokens), ""
    whole = (Source.UNKNOWN, UNKNOWN_USAGE, _amounts(held.prompt_tokens, held.ceiling), "")
    left = ending.how is How.CLIENT_LEFT
    if not stream and ending.how in (How.CLIENT_LEFT, How.CUT) and not ending.drained and reading.error_class not in _ERRORS:
        return whole
    if ending.how is How.ENDED and not UNREADABLE.isdisjoint(reading.anomalies) and reading.error_class is not ErrorClass.SERVER_ERROR:
        return whole
    failed = reading.error_class in (ErrorClass.SERVER_ERROR, ErrorClass.ERROR_IN_200)
    if not failed and (reading.content_seen or reading.running_output or reading.completed):
        return _known(reading, held, own, reserved=left and rules.cut_streams == "reserved") or whole
    unknown = Usage(input_tokens=held.prompt_tokens if held.prompt_exact else None, tool_calls=reading.usage.tool_calls or 0)  # none was delivered
    if reading.error_class not in _ERRORS and ending.how in (How.CLIENT_LEFT, How.CUT):
        output = held.ceiling if left and rules.cut_streams == "reserved" else 0
        return Source.UNKNOWN, unknown, _amounts(held.prompt_tokens, output), ""
    match rules.engine_errors:
        case "prompt":
            return Source.UNKNOWN, unknown, _amounts(held.prompt_tokens, 0), ""
        case "reserved":
            return Source.UNKNOWN, unknown, _amounts(held.prompt_tokens, held.ceiling), ""
        case "nothing":
            return Source.UNKNOWN, unknown, _amounts(0, 0), ""


def _known(reading: Reading, held: Held, own: OwnCount | None, reserved: bool) -> Row | None:
    """A lower bound: the larger of the engine's running total and our own count."""
    running = reading.running_output
    counted = own.output_tokens if own is not None else None
    if counted is None and running is None:
        if reading.content_seen:
            return None
        counted = 0
    by_engine = running is not None and running >= (counted or 0)
    output = max(running or 0, counted or 0)
    given = reading.usage.input_tokens
    partly = FIRST_PROMPT_ONLY in reading.anomalies
    if held.prompt_exact and (given is None or partly):
        given = held.prompt_tokens
    usage = _clamped(replace(reading.usage, input_tokens=given, output_tokens=output))
    charge = _amounts(held.prompt_tokens if given is None or partly else given, output)
    if reserved:
        charge = _amounts(held.prompt_tokens, max(held.ceiling, output))
    if by_engine:
        return Source.RUNNING, usage, charge, ""
    return Source.COUNTED, usage, charge, own.counted_by if own is not None else ""


def _outcome(reading: Reading, ending: Ending, source: Source, usage: Usage, held: Held) -> Outcome:
    if reading.error_class in _ERRORS:
        return Outcome.ENGINE_ERROR
    if ending.how is How.CUT and ending.cut is not None:
        return ending.cut
    if ending.how is How.CLIENT_LEFT:
        return Outcome.CLIENT_CANCELLED
    if not reading.completed:
        if ending.how is How.FAILED:
            return _FAILURES.get(ending.failure, Outcome.ENGINE_DIED)
        return Outcome.ENGINE_DIED if UNREADABLE.isdisjoint(reading.anomalies) else Outcome.ENGINE_ERROR
    words = (reading.finish_reason, *reading.finish_reasons)
    if not _BROKEN_ENDS.isdisjoint(words):
        return Outcome.ENGINE_ERROR
    reached = source is Source.REPORTED and usage.output_tokens is not None and usage.output_tokens >= held.ceiling > 0
    return Outcome.LENGTH if reached or not _LENGTH_WORDS.isdisjoint(words) else Outcome.COMPLETED


def _credible(reading: Reading, held: Held) -> tuple[Reading, tuple[str, ...]]:
    """Negative numbers, or more than the context, discredit a report: then it is as if it were missing. A part larger than its whole is clamped."""
    usage = reading.usage
    input_tokens, output_tokens, running_output = usage.input_tokens or 0, usage.output_tokens or 0, reading.running_output or 0
    parts = (usage.cached_tokens or 0, usage.cache_write_tokens or 0, usage.reasoning_tokens or 0, usage.tool_calls or 0)
    flags: list[str] = []
    impossible = min(input_tokens, output_tokens, running_output, *parts) < 0
    if held.context_tokens is not None:
        output = max(output_tokens, running_output)
        impossible = impossible or input_tokens > held.context_tokens * held.prompts or output > held.context_tokens * held.choices
    if impossible:
        flags.append("report_discredited")
        blank = Usage(tool_calls=usage.tool_calls if usage.tool_calls is not None and usage.tool_calls >= 0 else None)
        return replace(reading, usage=blank, source=MeterSource.MISSING, running_output=None), tuple(flags)
    clamped = _clamped(usage)
    if clamped is usage and not reading.anomalies:
        return reading, ()
    if clamped != usage or any("_exceeds_" in anomaly for anomaly in reading.anomalies):
        flags.append("clamped_part")
    return replace(reading, usage=clamped), tuple(flags)


def _clamped(usage: Usage) -> Usage:
    cached = _at_most(usage.cached_tokens, usage.input_tokens)
    cache_write = _at_most(usage.cache_write_tokens, usage.input_tokens)
    reasoning = _at_most(usage.reasoning_tokens, usage.output_tokens)
    if (cached, cache_write, reasoning) == (usage.cached_tokens, usage.cache_write_tokens, usage.reasoning_tokens):
        return usage
    return replace(usage, cached_tokens=cached, cache_write_tokens=cache_write, reasoning_tokens=reasoning)


def _refused_before_work(reading: Reading) -> bool:
    if _refuses(reading.status):
        return True
    first = reading.error_first and 200 <= reading.status < 300 and reading.error_class is ErrorClass.MID_STREAM_ERROR
    return first and reading.source is MeterSource.MISSING and reading.error_code is not None and _refuses(reading.error_code)


def _refuses(status: int) -> bool:
    return 300 <= status < 500 or status in _WORK_REFUSED


def _crossed(source: Source, usage: Usage, charge: Amounts, held: Held) -> tuple[str, ...]:
    flags: list[str] = []
    if charge.input_tokens > held.prompt_tokens or charge.output_tokens > held.ceiling:
        flags.append("overshoot")
    if usage.output_tokens is not None and usage.output_tokens > held.ceiling and source in (Source.REPORTED, Source.RUNNING):
        flags.append("cap_ignored")
    if source is Source.REPORTED and held.prompt_exact and usage.input_tokens != held.prompt_tokens:
        flags.append("count_drift")
    if usage.tool_calls is None:
        flags.append("tool_calls_unknown")
    return tuple(flags)


def _amounts(input_tokens: int, output_tokens: int) -> Amounts:
    return Amounts(requests=1, input_tokens=input_tokens, output_tokens=output_tokens)


def _at_most(part: int | None, whole: int | None) -> int | None:
    return part if part is None or whole is None else min(part, whole)
