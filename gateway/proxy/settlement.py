"""The entry that closes a call: made from what the meter read, written durably, and told to everyone who waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace

from gateway.accounting.commands import Event, Settle, Void
from gateway.accounting.quantity import Amounts
from gateway.accounting.settling import ChargeRules, Held, OwnCount, Terms, needs_own_count, settle_terms
from gateway.accounting.usage import UNKNOWN_USAGE, MeterSource, Outcome, Reading, Source
from gateway.errors import CommandRejected, LedgerUnavailable
from gateway.logs import log
from gateway.proxy.counted_late import held_late, with_input
from gateway.proxy.delivered import count_delivered
from gateway.proxy.under_way import UnderWay
from gateway.tokenizers.tokenizer import Finding

RETRY_FIRST_S = 0.2
RETRY_LONGEST_S = 5.0
IDS_MAX = 64
"""Ids of one answer that go on record, of each kind."""
ID_CHARACTERS_MAX = 200


async def settle(reservation: UnderWay) -> None:
    """Returns when it is durable, or when it could not be written: then it is tried again in the background, and the reservation goes on holding."""
    call, services = reservation.call, reservation.services
    unreachable = reservation.failure is not None and reservation.failure.kind == "unreachable"
    if unreachable:
        services.engines.unreachable(call.upstream.name)
    if unreachable or reservation.unsent:
        reason = "engine unreachable" if unreachable else "cut before anything was sent"
        await _write(reservation, Void(call_id=call.call_id, at_ms=services.ledger.now_ms(), reason=reason))
        return
    try:
        command = await _command(reservation)
    except Exception as error:  # a fault of ours may cost the figure, never the end of the reservation
        log.error("a call could not be measured", exc_info=error, extra={"fields": {"call": call.call_id}})
        command = _unmeasured(reservation)
    await _write(reservation, command)


def _unmeasured(reservation: UnderWay) -> Settle:
    """Charged whole, as what cannot be read is; and its answer may not look finished."""
    admission = reservation.admission
    charge = Amounts(requests=1, input_tokens=admission.prompt_tokens, output_tokens=admission.output)
    reservation.not_delivered = True
    reservation.terms = terms = Terms(outcome=Outcome.NOT_DELIVERED, source=Source.UNKNOWN, usage=UNKNOWN_USAGE, charge=charge)
    return Settle(
        call_id=reservation.call.call_id,
        at_ms=reservation.services.ledger.now_ms(),
        outcome=terms.outcome,
        source=terms.source,
        usage=terms.usage,
        charge=terms.charge,
        flags=("unmeasured",),
    )


async def _write(reservation: UnderWay, command: Settle | Void) -> None:
    try:
        await reservation.services.ledger.post(command)
    except LedgerUnavailable as error:
        log.error("a settlement could not be written", extra={"fields": {"call": command.call_id, "error": str(error)}})
        reservation.not_delivered = True
        retried = replace(command, outcome=Outcome.NOT_DELIVERED) if isinstance(command, Settle) else command
        reservation.services.background.spawn(_write_later(reservation, retried))
        return
    except CommandRejected as error:
        log.error("a settlement was rejected", extra={"fields": {"call": command.call_id, "error": str(error)}})
    _over(reservation)


async def _write_later(reservation: UnderWay, command: Settle | Void) -> None:
    pause = RETRY_FIRST_S
    while True:
        await asyncio.sleep(pause)
        try:
            await reservation.services.ledger.post(command)
        except LedgerUnavailable:
            pause = min(pause * 2, RETRY_LONGEST_S)
            continue
        except CommandRejected as error:
            log.error("a settlement was rejected", extra={"fields": {"call": command.call_id, "error": str(error)}})
        _over(reservation)
        return


def _over(reservation: UnderWay) -> None:
    services, call = reservation.services, reservation.call
    first_calls = call.identity.run.first_calls
    (first_calls.unsent if reservation.terms is None else first_calls.sent)(call.call_id)  # a void has no terms
    reservation.handle.end()
    services.gate.free(reservation.admission.upstream)
    services.runs.receipt_due(call.identity.campaign.campaign, call.identity.run.run)
    services.metrics.in_flight.dec()
    waited_s = reservation.admission.waited_ms / 1000
    before, after = reservation.sent_at - call.arrived_at - waited_s, time.monotonic() - reservation.engine_done_at
    services.metrics.overhead.observe(max(0.0, before + after))


async def _command(reservation: UnderWay) -> Settle:
    call, services = reservation.call, reservation.services
    reading = await with_input(reservation, _reading(reservation))
    held = await held_late(reservation, reading, _held(reservation))
    own = None
    if reservation.meter is not None and needs_own_count(reading, held):
        own = await count_delivered(call, services, reservation.meter.delivered_text())
    elif not call.request.generates and held.prompt_exact:
        own = OwnCount(output_tokens=0, counted_by=call.counter.name)
    charging = call.policy.charging
    rules = ChargeRules(cut_streams=charging.cut_streams, engine_errors=charging.engine_errors)
    streamed = reservation.meter.streams if reservation.meter is not None else call.request.stream
    terms = settle_terms(reading, reservation.ending, stream=streamed, held=held, own=own, rules=rules)
    reservation.terms = terms = _learned(reservation, terms)
    _measured(reservation, terms, reading)
    return Settle(
        call_id=call.call_id,
        at_ms=services.ledger.now_ms(),
        outcome=terms.outcome,
        source=terms.source,
        usage=terms.usage,
        charge=terms.charge,
        counted_by=terms.counted_by,
        flags=terms.flags,
        details=_details(reservation, reading),
    )


def _reading(reservation: UnderWay) -> Reading:
    if reservation.meter is None:
        return Reading(usage=UNKNOWN_USAGE, source=MeterSource.MISSING, status=reservation.status, completed=False)
    return reservation.meter.reading(reservation.status, truncated=reservation.failure is not None)


def _held(reservation: UnderWay) -> Held:
    admission, request = reservation.admission, reservation.call.request
    return Held(
        prompt_tokens=admission.prompt_tokens,
        prompt_exact=admission.prompt_exact and not request.pictures,  # a picture counts as the most that it can be
        ceiling=admission.output,
        context_tokens=reservation.call.context_tokens,
        choices=request.choices * request.prompts,
        prompts=request.prompts,
    )


def _learned(reservation: UnderWay, terms: Terms) -> Terms:
    """The report held against the figure that was reserved. A count that was never meant to be exact does not drift."""
    call, admission = reservation.call, reservation.admission
    reported, finding = terms.usage.input_tokens, None
    if terms.source is Source.REPORTED and reported is not None:
        finding = call.counter.observe(call.request, admission.prompt_tokens, admission.prompt_exact, reported)
    if finding is not None:
        log.warning("the engine's prompt count differs", extra={"fields": {"call": call.call_id, "finding": str(finding)}})
        details = {"reserved": admission.prompt_tokens, "reported": reported, "counted_by": call.counter.name if admission.prompt_exact else "bound"}
        reservation.services.background.spawn(_on_record(reservation, str(finding), details))
    if finding is Finding.COUNT_DRIFT:
        return terms
    return replace(terms, flags=tuple(flag for flag in terms.flags if flag != "count_drift"))


def _details(reservation: UnderWay, reading: Reading) -> dict[str, object]:
    details: dict[str, object] = {"status": reservation.status, "times_ms": _times(reservation)}
    known: dict[str, object | None] = {
        "finish_reason": reading.finish_reason,
        "response_id": reading.response_id,
        "model_reported": reading.model,
    }
    details |= {name: _text(value) for name, value in known.items() if isinstance(value, str)}
    if reading.error_class is not None:
        details["error"] = str(reading.error_class)
    if reservation.failure is not None and reservation.failure.phase:
        details["phase"] = reservation.failure.phase
    if (by := reservation.handle.cut_by) is not None and reservation.ending.cut is Outcome.DEADLINE_CUT:
        details["cut_by"] = {"name": by.name, "ceiling": by.ceiling, "settled": by.settled}
    for name, ids in (("tool_call_ids", reading.tool_call_ids), ("item_ids", reading.item_ids)):
        if ids:
            details[name] = [_text(one) for one in ids[:IDS_MAX]]
    details["delivered_bytes"] = {"text": reading.text_bytes, "reasoning": reading.reasoning_bytes, "tool_arguments": reading.tool_argument_bytes}
    if reading.anomalies:
        details["anomalies"] = [_text(one) for one in reading.anomalies[:IDS_MAX]]
    return details


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()[:ID_CHARACTERS_MAX]


def _times(reservation: UnderWay) -> dict[str, int]:
    """Milliseconds from admission."""
    times = {"end": round((time.monotonic() - reservation.admitted_at) * 1000)}
    if reservation.answer is not None and reservation.answer.first_byte_ms is not None:
        times["first_byte"] = reservation.answer.first_byte_ms
    relay = reservation.relay
    if relay is not None and relay.terminal_at is not None:
        times["terminal_event"] = round((relay.terminal_at - reservation.admitted_at) * 1000)
    return times


def _measured(reservation: UnderWay, terms: Terms, reading: Reading) -> None:
    metrics, model = reservation.services.metrics, reservation.call.request.model
    metrics.calls.labels(model, terms.outcome).inc()
    kinds = {
        "input": terms.usage.input_tokens,
        "output": terms.usage.output_tokens,
        "cached": terms.usage.cached_tokens,
        "reasoning": terms.usage.reasoning_tokens,
    }
    for kind, tokens in kinds.items():
        if tokens is not None:
            metrics.tokens.labels(model, kind, terms.source).inc(tokens)
        elif kind in ("input", "output"):
            metrics.unknown.labels(model, kind).inc()
    metrics.charged.labels(model, "input").inc(terms.charge.input_tokens)
    metrics.charged.labels(model, "output").inc(terms.charge.output_tokens)
    metrics.waited.labels(model).observe(reservation.admission.waited_ms / 1000)
    if (first_s := _first_content_s(reservation)) is not None:
        metrics.first_token.labels(model).observe(first_s)
    if any(anomaly.startswith("reader_choked") for anomaly in reading.anomalies):
        metrics.faults.labels(model).inc()
    if "count_drift" in terms.flags:
        metrics.drifts.labels(model).inc()
    if "overshoot" in terms.flags:
        metrics.overshoots.labels(model).inc()
        held = {"input": reservation.admission.prompt_tokens, "output": reservation.admission.output}
        for kind, tokens in (("input", terms.charge.input_tokens), ("output", terms.charge.output_tokens)):
            metrics.overshot_tokens.labels(model, kind).inc(max(0, tokens - held[kind]))
    if reservation.admission.clamped_by is not None:
        metrics.clamps.labels(reservation.admission.clamped_by).inc()


def _first_content_s(reservation: UnderWay) -> float | None:
    """From sending a call to the first content of its stream (comments are none), or to the first byte of an answer in one piece."""
    if reservation.meter is None or reservation.relay is None or reservation.answer is None:
        return None
    if reservation.meter.streams:
        at = reservation.relay.first_content_at
        return None if at is None else at - reservation.sent_at
    first_ms = reservation.answer.first_byte_ms
    return None if first_ms is None else first_ms / 1000


async def drained_too_long(reservation: UnderWay) -> None:
    """The engine was left at work, and nothing confirms that it stopped."""
    await _on_record(reservation, "cancel_unconfirmed", {"upstream": reservation.admission.upstream})


async def _on_record(reservation: UnderWay, name: str, details: Mapping[str, object]) -> None:
    """Something that must stand beside the settlement and changes no account."""
    call, services = reservation.call, reservation.services
    identity = call.identity
    event = Event(campaign=identity.campaign.campaign, run=identity.run.run, call_id=call.call_id, name=name, at_ms=services.ledger.now_ms(), details=details)
    try:
        await services.ledger.post(event)
    except (LedgerUnavailable, CommandRejected) as error:
        log.error("an event could not be written", extra={"fields": {"call": call.call_id, "name": name, "error": str(error)}})
