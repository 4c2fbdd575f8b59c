"""What is written before a byte goes to the engine, and the body that will be sent: one cap in it, the one that is reserved."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.accounting.commands import Reserve
from gateway.accounting.limit import Shortfall
from gateway.accounting.quantity import Amounts
from gateway.dialects.body_record import body_record, canonical_sha256, conversation, sent_record
from gateway.dialects.digests import Beginnings, of_both
from gateway.proxy.answer_headers import Warned, warnings
from gateway.proxy.calls import Call
from gateway.services import Services
from gateway.upstream.call import Admission


class Reserving:
    """Makes the command once the gate has decided; `sent` is the body that goes with it."""

    def __init__(self, call: Call, services: Services) -> None:
        self._call = call
        self._services = services
        self.sent = b""
        self.warned: tuple[Warned, ...] = ()

    def command(self, admission: Admission) -> Reserve:
        call, identity = self._call, self._call.identity
        request = call.request
        multiple = request.choices * request.prompts
        forwarded = call.dialect.forward_body(request, call.facts, ceiling_per_choice=admission.output // multiple, call_id=call.call_id)
        details = self._body_details(forwarded)
        if call.session:
            details["session"] = dict(call.session)
        if decided := decision_record(admission):
            details["decision"] = decided
        at_ms = self._services.ledger.now_ms()
        amounts = Amounts(requests=1, input_tokens=admission.prompt_tokens, output_tokens=admission.output, concurrent=1)
        identity.run.first_calls.admitted(identity.lane, call.call_id, at_ms)
        self.warned = warnings(call, admission, amounts, self._services)
        return Reserve(
            call_id=call.call_id,
            at_ms=at_ms,
            campaign=identity.campaign.campaign,
            run=identity.run.run,
            lane=identity.lane,
            key_id=identity.key_id,
            model=request.model,
            upstream=admission.upstream,
            dialect=call.dialect.name,
            stream=request.stream,
            accounts=tuple(limit.account for limit in admission.limits),
            amounts=amounts,
            prompt_source=call.counter.name if admission.prompt_exact else "bound",
            ceiling=admission.output,
            ceiling_from=admission.ceiling_from,
            clamped=admission.clamped_by is not None,
            waited_ms=admission.waited_ms,
            details=details,
        )

    def _body_details(self, forwarded: Mapping[str, object]) -> dict[str, object]:
        """Of the body as it came and as it goes; what both begin with is hashed once."""
        call, received = self._call, self._call.received
        self.sent, shared = received.forwarded(forwarded)
        digest, sent_digest = of_both(received.raw, self.sent, shared)
        spans = received.spans()
        digests = {(0, len(received.raw)): digest}
        messages = conversation(received.value)
        new_bytes: dict[str, object] = {}
        if messages is not None:
            span = spans["messages" if messages is received.value.get("messages") else "input"]
            text = Beginnings(memoryview(received.raw)[slice(*span)])
            told = self._services.growth.new_bytes(call.run_key, call.identity.lane, messages, text if received.written is not None else None)
            new_bytes["new_bytes"] = told
            digests[span] = text.sha256(len(text))
        settings = call.dialect.settings
        details = body_record(received.raw, received.value, settings, call.request.tool_names, spans, digests)
        details |= sent_record(forwarded, settings, self.sent, sent_digest)
        canonical = canonical_sha256(received.value, plain=received.structure.plain, known=(received.raw, digest))
        if canonical is not None:
            details["canonical_sha256"] = canonical
        return details | new_bytes


def decision_record(admission: Admission) -> dict[str, object]:
    """Why it got less than it wanted, or had to wait: the limits that were in its way, with their numbers at that moment. Empty where nothing was."""
    found: dict[str, object] = {}
    if admission.output < admission.demand.want:
        found["wanted"] = admission.demand.want
    if admission.clamp is not None:
        found["clamped_by"] = _numbers(admission.clamp)
    if admission.delay is not None:
        found["waited_on"] = _numbers(admission.delay)
    return found


def _numbers(shortfall: Shortfall) -> dict[str, object]:
    numbers: dict[str, object] = {
        "name": shortfall.name,
        "ceiling": shortfall.ceiling,
        "settled": shortfall.settled,
        "reserved": shortfall.reserved,
        "asked": shortfall.asked,
    }
    return numbers if shortfall.resets_at_ms is None else {**numbers, "resets_at_ms": shortfall.resets_at_ms}
