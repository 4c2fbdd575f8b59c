"""What an answer tells of limits in its headers: what is left, a clamp, a wait, and once for each limit a warning.

The rule: numbers are those before the call began, and within a run none rises but by a correction: where calls overlap, the last that was told stands.
With `tell_agent = false` only the wait is told; a warning is on record all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.accounting.balances import NO_NUMBERS
from gateway.accounting.commands import Event
from gateway.accounting.limit import Limit, Limits
from gateway.accounting.quantity import Amounts, Quantity, measures
from gateway.proxy.calls import Call
from gateway.runs.telling import warns_from
from gateway.services import Services
from gateway.upstream.call import Admission

LEFT_HEADERS = {
    Quantity.REQUESTS: "x-gateway-left-requests",
    Quantity.INPUT_TOKENS: "x-gateway-left-input",
    Quantity.OUTPUT_TOKENS: "x-gateway-left-output",
}
WARNING_HEADER = "x-gateway-warning"


def answer_headers(call: Call, admission: Admission) -> Mapping[str, str]:
    headers = {}
    if admission.waited_ms:
        headers["x-gateway-waited-ms"] = str(admission.waited_ms)
    if call.policy.agent.tell_agent and admission.clamped_by is not None:
        headers["x-gateway-clamped"] = f"{admission.output} {admission.clamped_by}"
    return headers


def left_headers(call: Call, admission: Admission, services: Services) -> Callable[[], Mapping[str, str]]:
    """To be asked for when the answer opens, which is the order in which agents hear of it."""
    if not call.policy.agent.tell_agent:
        return dict
    numbers, telling = services.ledger.balances.numbers, call.identity.run.telling
    before: list[tuple[str, str, int]] = []
    for limit in Limits.of(admission.limits).of_whole_run:
        name, key = LEFT_HEADERS.get(limit.account.quantity), limit.account.key
        if name is not None:
            before.append((name, key, max(0, limit.ceiling - numbers.get(key, NO_NUMBERS)[1])))

    def told() -> Mapping[str, str]:
        return {name: str(telling.left(key, number, numbers.get(key, NO_NUMBERS)[1])) for name, key, number in before}

    return told


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """A limit of the run of which this admission leaves little."""

    limit: Limit
    settled: int
    reserved: int
    """This call's part included."""


def warnings(call: Call, admission: Admission, amounts: Amounts, services: Services) -> tuple[Warned, ...]:
    """Those that were not told before. To be asked in the step in which the reservation is posted, before it stands on the balances."""
    warn_at, telling = call.policy.agent.warn_at, call.identity.run.telling
    if not warn_at:
        return ()
    found = []
    numbers, measured = services.ledger.balances.numbers, measures(amounts)
    for limit in Limits.of(admission.limits).of_run:
        account = limit.account
        before, settled = numbers.get(account.key, NO_NUMBERS)
        reserved = before + measured[account.quantity]
        if settled + reserved >= warns_from(warn_at, limit.ceiling) and account.quantity is not Quantity.CONCURRENT and telling.warn(account.key):
            found.append(Warned(limit=limit, settled=settled, reserved=reserved))
    return tuple(found)


def warning_headers(call: Call, warned: tuple[Warned, ...]) -> Mapping[str, str]:
    if not warned or not call.policy.agent.tell_agent:
        return {}
    return {WARNING_HEADER: ", ".join(each.limit.name for each in warned)}


def put_on_record(call: Call, warned: tuple[Warned, ...], services: Services) -> None:
    """Nobody waits for it: it changes nothing."""
    for each in warned:
        limit = each.limit
        details: dict[str, object] = {
            "limit": limit.name,
            "account": limit.account.key,
            "ceiling": limit.ceiling,
            "settled": each.settled,
            "reserved": each.reserved,
        }
        identity = call.identity
        event = Event(
            campaign=identity.campaign.campaign,
            run=identity.run.run,
            call_id=call.call_id,
            name="warn_at",
            at_ms=services.ledger.now_ms(),
            details=details,
        )
        services.metrics.warnings.labels(limit.name).inc()
        services.ledger.post(event).add_done_callback(lambda future: future.cancelled() or future.exception())
