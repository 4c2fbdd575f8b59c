"""The entry that closes a call: made from what the meter read, written durably, and told to everyone who waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from gateway.accounting.commands import Event, Settle, Void
from gateway.accounting.entries import Posting
from gateway.accounting.quantity import Amounts
from gateway.accounting.settling import ChargeRules, Held, OwnCount, Terms, needs_own_count, settle_terms
from gateway.accounting.usage import UNKNOWN_USAGE, MeterSource, Outcome, Reading, Source
from gateway.errors import CommandRejected, LedgerUnavailable
from gateway.ledger.state import RunStanding
from gateway.logs import log
from gateway.proxy.call_log import log_ended
from gateway.proxy.counted_late import counts_late, held_late, with_input
from gateway.proxy.delivered import count_delivered
from gateway.proxy.engine_told import marked, tell_engines
from gateway.proxy.measured import measured
from gateway.proxy.under_way import UnderWay
from gateway.tokenizers.tokenizer import Finding

RETRY_FIRST_S = 0.2
RETRY_LONGEST_S = 5.0
IDS_MAX = 64
"""Ids of one answer that go on record, of each kind."""
ID_CHARACTERS_MAX = 200


def settle_at_once(reservation: UnderWay) -> asyncio.Future[None] | None:
    """Posts what closes the call in this step of the loop. None where its output must be counted first: that is for `settle`.

    What is returned is done when it is durable, or when it could not be written: then it is tried again in the background, and the reservation goes on
    holding. Whoever waits may stop waiting: nothing depends on it.
    """
    if (void := _void(reservation)) is not None:
        return _write(reservation, void)
    try:
        reading, held = _reading(reservation), _held(reservation)
        if (reservation.meter is not None and needs_own_count(reading, held)) or counts_late(reservation, reading, held):
            return None
        command = _command(reservation, reading, held, _no_output(reservation, held))
    except Exception as error:
        command = _unmeasured(reservation, error)
    return _write(reservation, command)


async def settle(reservation: UnderWay) -> None:
    """The same, with a count of our own where there is nothing better."""
    closing = settle_at_once(reservation)
    if closing is None:
        closing = _write(reservation, await _counted(reservation))
    await closing


async def _counted(reservation: UnderWay) -> Settle:
    try:
        reading = reservation.reading = await with_input(reservation, _reading(reservation))
        held = await held_late(reservation, reading, _held(reservation))
        own = _no_output(reservation, held)
        if reservation.meter is not None and needs_own_count(reading, held):
            own = await count_delivered(reservation.call, reservation.services, reservation.meter.delivered_text())
        return _command(reservation, reading, held, own)
    except Exception as error:
        return _unmeasured(reservation, error)


def _no_output(reservation: UnderWay, held: Held) -> OwnCount | None:
    """Where a call generates nothing and its prompt was counted, all of it is known."""
    call = reservation.call
    return OwnCount(output_tokens=0, counted_by=call.counter.name) if not call.request.generates and held.prompt_exact else None


def _void(reservation: UnderWay) -> Void | None:
    """On evidence that nothing was sent."""
    call, services = reservation.call, reservation.services
    unreachable = reservation.failure is not None and reservation.failure.kind == "unreachable"
    if unreachable:
        services.engines.unreachable(call.upstream.name)
    elif not reservation.unsent:
        return None
    services.metrics.voids.labels(call.upstream.name, "unreachable" if unreachable else "unsent").inc()
    return Void(call_id=call.call_id, at_ms=services.ledger.now_ms(), reason="engine unreachable" if unreachable else "cut before anything was sent")


def _unmeasured(reservation: UnderWay, error: Exception) -> Settle:
    """A fault of ours may cost the figure, never the end of the reservation: charged whole, as what cannot be read is; its answer may not look finished."""
    log.error("a call could not be measured", exc_info=error, extra={"fields": {"call": reservation.call.call_id}})
    reservation.services.metrics.unmeasured.labels(reservation.call.upstream.name).inc()
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


def _write(reservation: UnderWay, command: Settle | Void) -> asyncio.Future[None]:
    written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    posted = reservation.services.ledger.post(command)
    posted.add_done_callback(partial(_written, reservation, command, written))
    reservation.services.background.hold(posted)
    return written


def _written(reservation: UnderWay, command: Settle | Void, written: asyncio.Future[None], posted: asyncio.Future[Posting]) -> None:
    error = posted.exception()
    try:
        if isinstance(error, LedgerUnavailable):
            log.error("a settlement could not be written", extra={"fields": {"call": command.call_id, "error": str(error)}})
            reservation.not_delivered = True
            retried = replace(command, outcome=Outcome.NOT_DELIVERED) if isinstance(command, Settle) else command
            reservation.services.background.spawn(_write_later(reservation, retried))
            return
        if error is not None:
            log.error("a settlement was rejected", extra={"fields": {"call": command.call_id, "error": str(error)}})
        _over(reservation, command)
    finally:
        if not written.done():
            written.set_result(None)


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
        _over(reservation, command)
        return


def _over(reservation: UnderWay, command: Settle | Void) -> None:
    services, call = reservation.services, reservation.call
    first_calls = call.identity.run.first_calls
    (first_calls.unsent if reservation.terms is None else first_calls.sent)(call.call_id)  # a void has no terms
    reservation.handle.end()
    tell_engines(reservation)
    services.gate.free(reservation.admission.upstream)
    if call.identity.run.state is not RunStanding.OPEN:
        services.runs.receipt_due(call.identity.campaign.campaign, call.identity.run.run)
    services.metrics.in_flight_now -= 1
    waited_s = reservation.admission.waited_ms / 1000
    before, after = reservation.sent_at - call.arrived_at - waited_s, time.monotonic() - reservation.engine_done_at
    services.metrics.overhead.observe(max(0.0, before + after))
    log_ended(reservation, command)


def _command(reservation: UnderWay, reading: Reading, held: Held, own: OwnCount | None) -> Settle:
    call, services = reservation.call, reservation.services
    charging = call.policy.charging
    rules = ChargeRules(cut_streams=charging.cut_streams, engine_errors=charging.engine_errors)
    streamed = reservation.meter.streams if reservation.meter is not None else call.request.stream
    terms = settle_terms(reading, reservation.ending, stream=streamed, held=held, own=own, rules=rules)
    reservation.terms = terms = marked(reservation, _learned(reservation, terms), reading)
    measured(reservation, terms, reading)
    _mark_engine(reservation, terms)
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
    reservation.reading = reservation.meter.reading(reservation.status, truncated=reservation.failure is not None)
    return reservation.reading


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
    if finding is Finding.COUNT_DRIFT or "count_drift" not in terms.flags:
        return terms
    return replace(terms, flags=tuple(flag for flag in terms.flags if flag != "count_drift"))


def _mark_engine(reservation: UnderWay, terms: Terms) -> None:
    """An engine that ran past a ceiling is marked; the first such call since the start stands on record."""
    name, asked, made = reservation.admission.upstream, reservation.admission.output, terms.usage.output_tokens
    if ("cap_ignored" not in terms.flags and terms.outcome is not Outcome.CAP_CUT) or not reservation.services.engines.ran_past_its_ceiling(name):
        return
    log.warning("the engine ran past the ceiling that it was sent", extra={"fields": {"call": reservation.call.call_id, "upstream": name}})
    details = {"upstream": name, "asked": asked, **({} if made is None else {"made": made})}
    reservation.services.background.spawn(_on_record(reservation, "cap_ignored", details))


def _details(reservation: UnderWay, reading: Reading) -> dict[str, object]:
    details: dict[str, object] = {"status": reservation.status, "times_ms": _times(reservation)}
    if isinstance(reading.finish_reason, str):
        details["finish_reason"] = _text(reading.finish_reason)
    if isinstance(reading.response_id, str):
        details["response_id"] = _text(reading.response_id)
    if isinstance(reading.model, str):
        details["model_reported"] = _text(reading.model)
    if reading.error_class is not None:
        details["error"] = str(reading.error_class)
    if reservation.failure is not None and reservation.failure.phase:
        details["phase"] = reservation.failure.phase
    if (by := reservation.handle.cut_by) is not None and reservation.ending.cut is Outcome.DEADLINE_CUT:
        details["cut_by"] = {"name": by.name, "ceiling": by.ceiling, "settled": by.settled}
    if reading.tool_call_ids:
        details["tool_call_ids"] = [_text(one) for one in reading.tool_call_ids[:IDS_MAX]]
    if reading.item_ids:
        details["item_ids"] = [_text(one) for one in reading.item_ids[:IDS_MAX]]
    details["delivered_bytes"] = {"text": reading.text_bytes, "reasoning": reading.reasoning_bytes, "tool_arguments": reading.tool_argument_bytes}
    if reading.anomalies:
        details["anomalies"] = [_text(one) for one in reading.anomalies[:IDS_MAX]]
    return details


def _text(value: str) -> str:
    plain = value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    return plain[:ID_CHARACTERS_MAX]


def _times(reservation: UnderWay) -> dict[str, int]:
    """Milliseconds from admission."""
    times = {"end": round((time.monotonic() - reservation.admitted_at) * 1000)}
    if reservation.answer is not None and (first_byte_ms := reservation.answer.first_byte_ms) is not None:
        times["first_byte"] = first_byte_ms
    relay = reservation.relay
    if relay is not None and relay.terminal_at is not None:
        times["terminal_event"] = round((relay.terminal_at - reservation.admitted_at) * 1000)
    return times


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
