"""A ledger on paper, and the tickets and reservations that go with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.accounting.balances import Balances, postings
from gateway.accounting.commands import Command, Reserve, Void
from gateway.accounting.decision import Demand
from gateway.accounting.entries import Posting
from gateway.accounting.limit import Account, CallCaps, Limit, Scope
from gateway.accounting.quantity import Amounts, Quantity
from gateway.accounting.wanting import make_demand
from gateway.upstream.call import Admission, Refusal, Ticket

POSTED = Posting(entries=(), lines=(), content={})


class Books:
    """A ledger whose commits end when told: a reservation shows at once, all else when its commit is done."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.balances = Balances()
        self.at_once = at_once
        self.commands: list[Command] = []
        self.writing: list[tuple[Command, asyncio.Future[Posting]]] = []
        self.held: dict[str, Reserve] = {}

    def post(self, command: Command) -> asyncio.Future[Posting]:
        future: asyncio.Future[Posting] = asyncio.get_running_loop().create_future()
        self.commands.append(command)
        self.writing.append((command, future))
        if isinstance(command, Reserve):
            self.held[command.call_id] = command
            self.balances.apply(postings(command.accounts, hold=command.amounts))
        if self.at_once:
            self.commit()
        return future

    def commit(self, error: Exception | None = None) -> None:
        writing, self.writing = self.writing, []
        for command, future in writing:
            if isinstance(command, Void) or (error is not None and isinstance(command, Reserve)):
                self.release(command.call_id)
            if error is None:
                future.set_result(POSTED)
            else:
                future.set_exception(error)

    def release(self, call_id: str) -> None:
        reserve = self.held.pop(call_id)
        self.balances.apply(postings(reserve.accounts, release=reserve.amounts))

    @property
    def reserved(self) -> int:
        return sum(balance.reserved for _, balance in self.balances)


REQUESTS = Account(scope=Scope.RUN, subject="c/r", quantity=Quantity.REQUESTS)
INPUT = Account(scope=Scope.RUN, subject="c/r", quantity=Quantity.INPUT_TOKENS)


def ticket(
    name: str,
    *,
    requests: int = 100,
    bound: int = 10,
    count: Callable[[], Awaitable[int]] | None = None,
    check: Callable[[int], Refusal | None] = lambda now: None,
) -> Ticket:
    limits = (Limit(name="run.requests", account=REQUESTS, ceiling=requests), Limit(name="run.input_tokens", account=INPUT, ceiling=1_000))

    def demand(prompt: int, exact: bool) -> Demand:
        return make_demand(
            prompt_tokens=prompt, exact=exact, can_count=count is not None, multiple=1, asked=100, default=None, caps=CallCaps(), context_tokens=None
        )

    return Ticket(
        call_id=name,
        campaign="c",
        run="r",
        lane="f",
        engines=("e",),
        resolve=lambda now: limits,
        demand=demand,
        bound_tokens=bound,
        bound_exact=count is None,
        count=count,
        check=check,
    )


def reserve_of(wanted: Ticket) -> Callable[[Admission], Reserve]:
    def reserve(admission: Admission) -> Reserve:
        return Reserve(
            call_id=wanted.call_id,
            at_ms=0,
            campaign="c",
            run="r",
            lane="f",
            key_id="k",
            model="m",
            upstream=admission.upstream,
            dialect="d",
            stream=False,
            accounts=tuple(limit.account for limit in admission.limits),
            amounts=Amounts(requests=1, input_tokens=admission.prompt_tokens, output_tokens=admission.output, concurrent=1),
            prompt_source="bound",
            ceiling=admission.output,
            ceiling_from=admission.ceiling_from,
        )

    return reserve
