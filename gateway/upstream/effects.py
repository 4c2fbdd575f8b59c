"""What a turn leads to: what the waiting place asks of the outside, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gateway.accounting.decision import Final, Send
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

    def refused(self, final: bool) -> None:
        self.final += final
        self.passing += not final

    def admitted(self, clamped: bool) -> None:
        self.sent += 1
        self.clamped += clamped


def budget_reached(verdict: Final) -> Refusal:
    return Refusal(code="run_budget_reached", final=True, shortfall=verdict.shortfall)


def admission_of(waiter: Waiter, send: Send, now_ms: int) -> Admission:
    demand = waiter.demand
    waiter.delay(now_ms)
    return Admission(
        call_id=waiter.ticket.call_id,
        upstream=waiter.ticket.engine,
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
    )
