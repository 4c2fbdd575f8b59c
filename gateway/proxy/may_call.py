"""Whether a key may have calls at this moment, whatever these say: its run is open and in time, and the gateway can put a call on record."""

from __future__ import annotations

from typing import Final

from gateway.accounting.decision import Demand, LimitView, spent
from gateway.accounting.quantity import Quantity
from gateway.errors import ClockUncertain, LedgerUnavailable
from gateway.runs.keys import Identity
from gateway.services import Services
from gateway.upstream.call import Refusal, Refused

_NOTHING: Final = (0, 0)
ANY_CALL: Final = Demand(
    prompt_tokens=0, exact=True, can_count=False, multiple=1, want=0, least=0, bound_lowered_want=False, ceiling_from="asked", enough=0
)  # fmt: skip


def check_open(services: Services, identity: Identity) -> None:
    """Raises Refused: what is true whatever the body says."""
    if services.stopping.begun:
        raise Refused(Refusal(code="shutting_down", final=False))
    if not identity.live:
        raise Refused(Refusal(code="run_closed", final=True))
    try:
        services.ledger.admissible()
    except ClockUncertain:
        raise Refused(Refusal(code="clock", final=False)) from None
    except LedgerUnavailable:
        raise Refused(Refusal(code="ledger_unavailable", final=False)) from None


def refused_now(services: Services, identity: Identity, now_ms: int) -> Refusal | None:
    """What became true while a call was read, or waited."""
    if not identity.live:
        return Refusal(code="run_closed", final=True)
    if services.ledger.clock.doubt:
        return Refusal(code="clock", final=False)
    return _run_refuses(services, identity, now_ms)


def _run_refuses(services: Services, identity: Identity, now_ms: int | None = None) -> Refusal | None:
    """The clock is asked where a deadline is all that needs it."""
    deadline = services.runs.deadline(identity)
    if deadline is not None:
        now_ms = services.ledger.now_ms() if now_ms is None else now_ms
        if deadline.passed(now_ms):
            return Refusal(code=deadline.code, final=True, shortfall=deadline.shortfall(now_ms))
    if identity.campaign.policy.agent.require_preflight and not identity.run.preflighted:
        return Refusal(code="preflight_required", final=True)
    return None


def check_in_time(services: Services, identity: Identity) -> None:
    """Raises Refused: before a body is read, behind `check_open`."""
    refusal = _run_refuses(services, identity)
    if refusal is not None:
        raise Refused(refusal)


def check_left(services: Services, identity: Identity) -> None:
    """Raises Refused: a limit that every call needs is spent, for good or for longer than a call may wait. Before a body is read: after the end all is cheap.

    Where a model has such limits of its own, the call's model must be known first: the narrowest that is spent is named.
    """
    campaign, now_ms = identity.campaign, services.ledger.now_ms()
    limits = services.remembered.limits(
        campaign.policy, campaign=campaign.campaign, run=identity.run.run, lane=identity.lane, model="", now_ms=now_ms, origins=campaign.origins
    )
    numbers = services.ledger.balances.numbers
    tight = [limit for limit, key, ceiling in limits.of_any_call if sum(numbers.get(key, _NOTHING)) >= ceiling]
    if not tight:
        return
    declared = (*campaign.policy.declared, *services.settings.limits.declared)
    if any(each.model and each.quantity in (Quantity.REQUESTS, Quantity.TOOL_CALLS) for each in declared):
        return
    ends_ms, deadline = now_ms + campaign.policy.admission.queue_seconds * 1000, services.runs.deadline(identity)
    latest_ms = ends_ms if deadline is None else min(ends_ms, deadline.at_ms)
    of = services.ledger.balances.of
    view = [LimitView(limit=each, balance=of(each.account), reopens=(each.window_end_ms or latest_ms) < latest_ms) for each in tight]
    if (over := spent(view, ANY_CALL)) is not None:
        raise Refused(Refusal(code="run_budget_reached", final=True, shortfall=over.shortfall))
