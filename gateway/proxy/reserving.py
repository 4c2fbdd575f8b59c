"""What is written before a byte goes to the engine, and the body that will be sent: one cap in it, the one that is reserved."""

from __future__ import annotations

import json
from collections.abc import Mapping

import orjson

from gateway.accounting.commands import Reserve
from gateway.accounting.limit import Limit, Scope
from gateway.accounting.quantity import Amounts, Quantity
from gateway.dialects.body_record import body_record, canonical_sha256, sent_record
from gateway.proxy.calls import Call
from gateway.services import Services
from gateway.upstream.call import Admission

LEFT_HEADERS = {
    Quantity.REQUESTS: "x-gateway-left-requests",
    Quantity.INPUT_TOKENS: "x-gateway-left-input",
    Quantity.OUTPUT_TOKENS: "x-gateway-left-output",
}


class Reserving:
    """Makes the command once the gate has decided; `sent` is the body that goes with it."""

    def __init__(self, call: Call, services: Services) -> None:
        self._call = call
        self._services = services
        self.sent = b""

    def command(self, admission: Admission) -> Reserve:
        call, identity = self._call, self._call.identity
        request = call.request
        multiple = request.choices * request.prompts
        forwarded = call.dialect.forward_body(request, call.facts, ceiling_per_choice=admission.output // multiple, call_id=call.call_id)
        self.sent = dumped(forwarded)
        settings = call.dialect.settings
        details: dict[str, object] = body_record(call.raw, call.body, settings, request.tool_names)
        details |= sent_record(forwarded, settings, self.sent)
        if (canonical := canonical_sha256(call.body)) is not None:
            details["canonical_sha256"] = canonical
        if call.session:
            details["session"] = dict(call.session)
        at_ms = self._services.ledger.now_ms()
        identity.run.first_calls.admitted(identity.lane, call.call_id, at_ms)
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
            amounts=Amounts(requests=1, input_tokens=admission.prompt_tokens, output_tokens=admission.output, concurrent=1),
            prompt_source=call.counter.name if admission.prompt_exact else "bound",
            ceiling=admission.output,
            ceiling_from=admission.ceiling_from,
            clamped=admission.clamped_by is not None,
            waited_ms=admission.waited_ms,
            details=details,
        )


def dumped(body: Mapping[str, object]) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError:  # lone surrogates and whole numbers above 64 bits: written as they were read
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()


def answer_headers(call: Call, admission: Admission, services: Services) -> Mapping[str, str]:
    """What an answer tells of limits: numbers before this call, so that they never rise within a run."""
    headers = {}
    if admission.waited_ms:
        headers["x-gateway-waited-ms"] = str(admission.waited_ms)
    if not call.policy.agent.tell_agent:
        return headers
    if admission.clamped_by is not None:
        headers["x-gateway-clamped"] = f"{admission.output} {admission.clamped_by}"
    for limit in admission.limits:
        name = LEFT_HEADERS.get(limit.account.quantity)
        if name is not None and _is_the_runs_own(limit):
            headers[name] = str(max(0, limit.ceiling - services.ledger.balances.of(limit.account).settled))
    return headers


def _is_the_runs_own(limit: Limit) -> bool:
    account = limit.account
    return account.scope is Scope.RUN and not (account.lane or account.model or account.window)
