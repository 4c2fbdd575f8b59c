"""What a turn leads to: what the waiting place asks of the outside, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gateway.accounting.decision import Final, Send, Wait
from gateway.upstream.call import Admission, Refusal, Ticket
from gateway.upstream.waiter import Waiter


class Effects(Protocol):
    """What the logic asks of the outside."""

    def commit(self, ticket: Ticket, admission: Admission) -> None:
        """Post the reservation. The balances must show it when this returns, unless `commit_failed` was called."""

    def count(self, waiter: Waiter) -> None:
        """Begin the exact count; `Turns.counted` or `Turns.refuse` is called later."""

    def refuse(self, ticket: Ticket, refusal: Refusal) -> None: ...


@dataclass(slots=True)
class Counts:
    """For metrics: they only rise."""

    sent: int = 0
    waited: int = 0
    """Calls that could not be answered at once."""
    clamped: int = 0
    counted: int = 0
    final: int = 0
    passing: int = 0
    left: int = 0
    commit_failed: int = 0
    passes: int = 0
    looks: int = 0
    """Heads that were looked at in passes: the work that these were."""
    home: int = 0
    """Calls that went to the engine that had served their flow last, of those that could go to several."""
    away: int = 0
    """Calls that did not, though there was one."""

    def refused(self, final: bool) -> None:
        self.final += final
        self.passing += not final

    def admitted(self, clamped: bool, at_home: bool | None) -> None:
        self.sent += 1
        self.clamped += clamped
        self.home += at_home is True
        self.away += at_home is False


UNAVAILABLE = Refusal(code="engine_unavailable", final=False)
"""No upstream that could serve the call takes any."""


def in_vain(verdict: Send | Wait, halted: bool, out: bool) -> Refusal:
    """Its wait is over."""
    if out and not halted:
        return UNAVAILABLE
    return Refusal(code="campaign_halted" if halted else "busy", final=False, shortfall=verdict.shortfall if isinstance(verdict, Wait) else None)


def budget_reached(verdict: Final) -> Refusal:
    return Refusal(code="run_budget_reached", final=True, shortfall=verdict.shortfall)


def admission_of(waiter: Waiter, send: Send, now_ms: int, at_home: bool | None) -> Admission:
    demand = waiter.demand
    waiter.delay(now_ms)
    return Admission(
        call_id=waiter.ticket.call_id,
        upstream=waiter.engine,
        output=send.output,
        clamped_by=send.clamped_by,
        ceiling_from=send.clamped_by or demand.ceiling_from,
        prompt_tokens=demand.prompt_tokens,
        prompt_exact=demand.exact,
        waited_ms=now_ms - waiter.arrived_ms,
        limits=waiter.limits,
        demand=demand,
        clamp=send.clamp,
        delays=tuple(waiter.delays.values()),
        position=waiter.position,
        at_home=at_home,
    )
