"""Whether a key may have calls at this moment, whatever these say: its run is open and in time, and the gateway can put a call on record."""

from __future__ import annotations

from gateway.errors import ClockUncertain, LedgerUnavailable
from gateway.runs.keys import Identity
from gateway.services import Services
from gateway.upstream.call import Refusal, Refused


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
    deadline = services.runs.deadline(identity)
    if deadline is not None and deadline.passed(now_ms):
        return Refusal(code=deadline.code, final=True, shortfall=deadline.shortfall(now_ms))
    if identity.campaign.policy.agent.require_preflight and not identity.run.preflighted:
        return Refusal(code="preflight_required", final=True)
    return None


def check_in_time(services: Services, identity: Identity) -> None:
    """Raises Refused: before a body is read."""
    refusal = refused_now(services, identity, services.ledger.now_ms())
    if refusal is not None:
        raise Refused(refusal)
