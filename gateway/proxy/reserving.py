"""What is written before a byte goes to the engine, and the body that will be sent: one cap in it, the one that is reserved."""

from __future__ import annotations

from gateway.accounting.commands import Reserve
from gateway.accounting.limit import Shortfall
from gateway.accounting.quantity import Amounts
from gateway.proxy.answer_headers import Warned, warnings
from gateway.proxy.body_details import body_details
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
        call.goes_to(admission.upstream, self._services)
        forwarded = call.dialect.forward_body(request, call.facts, ceiling_per_choice=admission.output // multiple, call_id=call.call_id)
        self.sent, details = body_details(call, forwarded, self._services.growth)
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
            accounts=admission.limits.accounts,
            amounts=amounts,
            prompt_source=call.counter.name if admission.prompt_exact else "bound",
            ceiling=admission.output,
            ceiling_from=admission.ceiling_from,
            clamped=admission.clamped_by is not None,
            waited_ms=admission.waited_ms,
            details=details,
        )


def decision_record(admission: Admission) -> dict[str, object]:
    """Why it got less than it wanted, or had to wait: the limits that were in its way, with their numbers at that moment. Empty where nothing was."""
    found: dict[str, object] = {}
    if admission.output < admission.demand.want:
        found["wanted"] = admission.demand.want
    if admission.clamp is not None:
        found["clamped_by"] = _numbers(admission.clamp)
    if admission.position is not None:
        waited_on_limits = sum(delay.ms for delay in admission.delays)
        found["queue"] = {"position": admission.position, "slot_ms": max(0, admission.waited_ms - waited_on_limits)}
    if admission.at_home is False:
        found["away"] = True
    if admission.delays:
        first, *others = ({**_numbers(delay.shortfall), "ms": delay.ms} for delay in admission.delays)
        found["waited_on"] = first
        if others:
            found["then_waited_on"] = others
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
