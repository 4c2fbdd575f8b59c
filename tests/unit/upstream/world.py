"""A simulated world around the waiting place: time that is only told, engines that obey, a ledger whose commits end when the script says so."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.accounting.balances import Balances, postings
from gateway.accounting.decision import Demand
from gateway.accounting.limit import Account, CallCaps, Limit, Scope
from gateway.accounting.quantity import Amounts, Quantity
from gateway.accounting.wanting import make_demand
from gateway.upstream.call import Admission, Refusal, Ticket
from gateway.upstream.homes import AFFINITY_WAIT_MS
from gateway.upstream.queue import GateSettings
from gateway.upstream.turns import Turns
from gateway.upstream.waiter import Cause, FlowKey, Waiter

DAY_MS = 86_400_000
START_MS = 20_000 * DAY_MS + DAY_MS - 100_000
"""100 s before a midnight."""


ENDLESS = 5_000


@dataclass(slots=True)
class Time:
    """Clock and timers in one."""

    now_ms: int = START_MS
    soon: list[Callable[[], object]] = field(default_factory=list)
    later: list[tuple[int, int, _Alarm]] = field(default_factory=list)
    set_so_far: int = 0

    def now(self) -> int:
        return self.now_ms

    def call_soon(self, callback: Callable[[], object], /) -> None:
        self.soon.append(callback)

    def call_later(self, delay: float, callback: Callable[[], object], /) -> _Alarm:
        self.set_so_far += 1
        assert self.set_so_far < ENDLESS, "timers without end"
        alarm = _Alarm(callback)
        heapq.heappush(self.later, (self.now_ms + max(round(delay * 1000), 0), self.set_so_far, alarm))
        return alarm

    def tick(self) -> None:
        for _ in range(ENDLESS):
            if not self.soon:
                return
            self.soon.pop(0)()
        raise AssertionError("passes without end")

    def advance(self, ms: int) -> None:
        until = self.now_ms + ms
        self.tick()
        while self.later and self.later[0][0] <= until:
            self.now_ms, _, alarm = heapq.heappop(self.later)
            if not alarm.cancelled:
                alarm.callback()
            self.tick()
        self.now_ms = until


@dataclass(slots=True)
class _Alarm:
    callback: Callable[[], object]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass(slots=True, kw_only=True)
class Budget:
    """Ceilings by `scope.quantity`, or `campaign.day.quantity`; `run.LANE.quantity` for a lane."""

    ceilings: Mapping[str, int]

    def limits(self, campaign: str, run: str, lane: str, now_ms: int) -> tuple[Limit, ...]:
        found = []
        for name, ceiling in self.ceilings.items():
            scope, *middle, quantity = name.split(".")
            day = "day" in middle
            lanes = [part for part in middle if part != "day"]
            if lanes and lanes[0] != lane:
                continue
            subject = {"run": f"{campaign}/{run}", "campaign": campaign, "gateway": ""}[scope]
            window = f"day {now_ms // DAY_MS}" if day else ""
            account = Account(scope=Scope(scope), subject=subject, quantity=Quantity(quantity), lane=lanes[0] if lanes else "", window=window)
            ends = (now_ms // DAY_MS + 1) * DAY_MS if day else None
            found.append(Limit(name=name, account=account, ceiling=ceiling, window_end_ms=ends))
        return tuple(sorted(found, key=lambda limit: ("run", "campaign", "gateway").index(limit.account.scope.value)))


@dataclass(slots=True, kw_only=True, eq=False)
class Sent:
    ticket: Ticket
    admission: Admission
    committed: bool = False

    @property
    def amounts(self) -> Amounts:
        return Amounts(requests=1, concurrent=1, input_tokens=self.admission.prompt_tokens, output_tokens=self.admission.output)

    @property
    def accounts(self) -> list[Account]:
        return [limit.account for limit in self.admission.limits]


class World:
    """Calls by number; what became of each stands in `outcomes`."""

    def __init__(
        self,
        ceilings: Mapping[str, int],
        slots: Mapping[str, int],
        *,
        enough: int = 40,
        queue_length: int = 1_000,
        commits: bool = True,
        kind: type[Turns] = Turns,
        least: int = 10,
        affinity_wait_ms: int = AFFINITY_WAIT_MS,
    ) -> None:
        self.time = Time()
        self.balances = Balances()
        self.budget = Budget(ceilings=ceilings)
        self.ceilings: dict[Account, int] = {}
        self.enough, self.least = enough, least
        self.commits = commits
        """Commits succeed at once."""
        self.turns = kind(self.balances, self.time.now, self.time, slots, GateSettings(queue_length=queue_length, affinity_wait_ms=affinity_wait_ms), self)
        self.slots = dict(slots)
        self.running: dict[str, Sent] = {}
        self.settled: list[tuple[Sent, int]] = []
        self.counts: dict[str, Waiter] = {}
        self.real_prompts: dict[str, int] = {}
        self.outcomes: dict[str, list[str]] = {}
        self.refusals: dict[str, Refusal] = {}
        self.order: list[str] = []
        """Calls in the order in which they were sent."""
        self.takes: Callable[[str], bool] | None = None
        """Which engines the policy takes."""
        self.homes: dict[FlowKey, str] = {}
        """Where each flow was served last."""
        self.halted: set[str] = set()
        self.closed: set[tuple[str, str]] = set()
        self.walls_ms: dict[str, int] = {}
        """Run -> how long it may go on from its first call."""
        self.begun_ms: dict[tuple[str, str], int] = {}
        """When the first call of each run was sent."""

    def call(
        self,
        name: str,
        *,
        run: str = "r",
        lane: str = "f",
        engine: str | tuple[str, ...] = "e",
        campaign: str = "c",
        asked: int = 100,
        prompt: int = 10,
        bound: int | None = None,
        multiple: int = 1,
        deadline_ms: int | None = None,
        prompt_cap: int | None = None,
        queue_ms: int = 120_000,
        over: str = "clamp",
    ) -> Waiter:
        """A call arrives; `bound` where its prompt is known only by a bound and can be counted."""

        def demand(prompt_tokens: int, exact: bool) -> Demand:
            return make_demand(
                prompt_tokens=prompt_tokens,
                exact=exact,
                can_count=bound is not None,
                multiple=multiple,
                asked=asked,
                default=None,
                caps=CallCaps(),
                context_tokens=None,
                over="refuse" if over == "refuse" else "clamp",
                min_output_tokens=self.least,
                enough_output_tokens=self.enough,
            )

        def check(now_ms: int) -> Refusal | None:
            if (campaign, run) in self.closed:
                return Refusal(code="run_closed", final=True)
            if (ends := self.ends_ms(campaign, run)) is not None and now_ms >= ends:
                return Refusal(code="run_budget_reached", final=True)
            return Refusal(code="window_over", final=True) if deadline_ms is not None and now_ms >= deadline_ms else None

        def deadline() -> int | None:
            return min((moment for moment in (deadline_ms, self.ends_ms(campaign, run)) if moment is not None), default=None)

        def check_prompt(prompt_tokens: int, exact: bool) -> Refusal | None:
            return Refusal(code="prompt_above_cap", final=True) if prompt_cap is not None and prompt_tokens > prompt_cap else None

        self.outcomes[name] = []
        self.real_prompts[name] = prompt
        return self.turns.arrive(
            Ticket(
                call_id=name,
                campaign=campaign,
                run=run,
                lane=lane,
                engines=tuple(engine),
                resolve=lambda now_ms: self.budget.limits(campaign, run, lane, now_ms),
                demand=demand,
                bound_tokens=prompt if bound is None else bound,
                bound_exact=bound is None,
                count=None,
                check=check,
                check_prompt=check_prompt,
                halted=lambda: campaign in self.halted,
                deadline=deadline,
                queue_ms=queue_ms,
                takes=self.takes,
            )
        )

    def ends_ms(self, campaign: str, run: str) -> int | None:
        begun, wall = self.begun_ms.get((campaign, run)), self.walls_ms.get(run)
        return None if begun is None or wall is None else begun + wall

    # What the waiting place asks for.

    def commit(self, ticket: Ticket, admission: Admission) -> None:
        self.begun_ms.setdefault((ticket.campaign, ticket.run), self.time.now_ms)
        ends = self.ends_ms(ticket.campaign, ticket.run)
        assert ends is None or self.time.now_ms < ends, "sent after its run's deadline"
        assert ticket.campaign not in self.halted and (ticket.campaign, ticket.run) not in self.closed
        sent = Sent(ticket=ticket, admission=admission, committed=self.commits)
        self.balances.apply(postings(sent.accounts, hold=sent.amounts))
        for limit in admission.limits:
            self.ceilings[limit.account] = limit.ceiling
            balance = self.balances.of(limit.account)
            if limit.account.quantity is Quantity.TOOL_CALLS:
                assert balance.settled < limit.ceiling and balance.reserved == 0, (limit.name, balance)
            else:
                assert balance.reserved + balance.settled <= limit.ceiling, (limit.name, balance)
        assert admission.demand.least <= admission.output <= admission.demand.want
        assert admission.upstream in ticket.engines
        self.homes[(ticket.campaign, ticket.run, ticket.lane, ticket.engines)] = admission.upstream
        self.running[ticket.call_id] = sent
        self.order.append(ticket.call_id)
        self.outcomes[ticket.call_id].append("sent")

    def count(self, waiter: Waiter) -> None:
        assert all(other.run != waiter.run for other in self.counts.values() if other.queued and other.counting), "two counts of one run"
        self.counts[waiter.ticket.call_id] = waiter

    def refuse(self, ticket: Ticket, refusal: Refusal) -> None:
        self.outcomes[ticket.call_id].append("final" if refusal.final else "passing")
        self.refusals[ticket.call_id] = refusal

    # What happens.

    def counted(self, name: str) -> None:
        self.turns.counted(self.counts.pop(name), self.real_prompts[name])
        self.time.tick()

    def settle(self, name: str, output: int | None = None, tools: int = 0) -> None:
        """It ends, having used `output` of what it was sent with (None: all) and called so many tools."""
        sent = self.running.pop(name)
        used = sent.admission.output if output is None else min(output, sent.admission.output)
        charge = Amounts(requests=1, input_tokens=sent.admission.prompt_tokens, output_tokens=used, tool_calls=tools)
        self.settled.append((sent, used))
        self.balances.apply(postings(sent.accounts, release=sent.amounts, charge=charge))
        self.turns.free(sent.admission.upstream)
        self.time.tick()

    def fail_commit(self, name: str) -> None:
        sent = self.running.pop(name)
        self.balances.apply(postings(sent.accounts, release=sent.amounts))
        self.turns.commit_failed(sent.admission.upstream)
        self.outcomes[name][-1] = "failed"
        self.order.remove(name)
        self.time.tick()

    def adjust(self, index: int, less: int) -> None:
        """A correction downwards of a settled call."""
        sent, used = self.settled[index]
        less = min(less, used)
        self.settled[index] = sent, used - less
        self.balances.apply(postings(sent.accounts, refund=Amounts(output_tokens=less)))
        self.turns.wake()
        self.time.tick()

    def leave(self, waiter: Waiter) -> None:
        self.outcomes[waiter.ticket.call_id].append("left")
        self.turns.leave(waiter)
        self.time.tick()

    def set_slots(self, engine: str, number: int) -> None:
        self.slots[engine] = number
        if not number:
            self.homes = {flow: home for flow, home in self.homes.items() if home != engine}
        self.turns.set_slots(engine, number)
        self.time.tick()

    def halt(self, campaign: str = "c") -> None:
        self.halted.add(campaign)
        self.turns.halted_changed(campaign)
        self.time.tick()

    def resume(self, campaign: str = "c") -> None:
        self.halted.discard(campaign)
        self.turns.halted_changed(campaign)
        self.time.tick()

    def close(self, run: str, campaign: str = "c") -> None:
        self.closed.add((campaign, run))
        self.turns.recheck(campaign, run)
        self.time.tick()

    def release(self) -> None:
        self.turns.wake(Cause.RELEASED)
        self.time.tick()

    def waiting(self) -> list[str]:
        return [view.call_id for view in self.turns.queue.views()]

    def output(self, name: str) -> int:
        return self.running[name].admission.output
