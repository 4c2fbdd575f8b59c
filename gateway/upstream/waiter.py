"""One call in the queue: what it wants, how far its patience goes, and what it was told last.

Rule: a waiter holds neither slot nor room. It may have room set aside for it, which is nothing but others' standing back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from gateway.accounting.balances import Balances
from gateway.accounting.decision import Decision, Demand, LimitView, Patience, Send, Wait, ever, holds, need
from gateway.accounting.limit import NO_LIMITS, Account, Balance, Limit, Limits, Shortfall
from gateway.accounting.quantity import Quantity
from gateway.upstream.call import Delay, Ticket

FlowKey = tuple[str, str, str, tuple[str, ...]]
"""campaign, run, lane, the engines that can serve its calls"""


class Cause(StrEnum):
    """What is followed by a pass over the queue. Whoever forgets one leaves others standing."""

    ARRIVED = "arrived"
    ADMITTED = "admitted"
    REFUSED = "refused"
    LEFT = "left"
    COUNTED = "counted"
    ENOUGH = "enough"
    """`clamp_after` has come."""
    ENDED = "ended"
    """A wait is over."""
    RELEASED = "released"
    """Settled, voided, expired or corrected; a slot given back."""
    FAILED = "failed"
    """A reservation could not be committed."""
    HALTED = "halted"
    RESUMED = "resumed"
    CLOSED = "closed"
    MIDNIGHT = "midnight"
    DROPPED = "dropped"
    """Room that was set aside is set aside no more."""
    SLOTS = "slots"
    AWAY = "away"
    """A call has waited long enough for the engine that served its flow last."""


@dataclass(slots=True, eq=False)
class Place:
    """An account that somebody waits on."""

    account: Account
    balance: Balance
    gone: int
    """Of the balance: settled and reserved together."""
    flows: dict[FlowKey, int] = field(default_factory=dict)
    """How many of each flow wait on it."""
    most_needed: int = 0
    """No waiter here needs more, and none has a ceiling below `least_ceiling`: while that much is left, nobody need be told of a settlement."""
    least_ceiling: int | None = None
    holder: Waiter | None = None
    """The call for which room is set aside here."""

    def note(self, ceiling: int, needed: int) -> None:
        self.most_needed = max(self.most_needed, needed)
        self.least_ceiling = ceiling if self.least_ceiling is None else min(self.least_ceiling, ceiling)

    def ample(self) -> bool:
        """Even the most demanding waiter could get all that it wants, if it waited."""
        spent = self.balance.settled
        if self.account.quantity is Quantity.REQUESTS:
            spent += self.balance.reserved
        return self.least_ceiling is not None and self.least_ceiling - spent >= max(self.most_needed, 1)

    def aside_for_others(self, waiter: Waiter | None) -> int:
        holder = self.holder
        if holder is None or holder is waiter:
            return 0
        return holds(self.account.quantity, holder.demand.prompt_tokens, holder.floor)


@dataclass(slots=True, eq=False, kw_only=True)
class Waiter:
    ticket: Ticket
    sequence: int
    """Order of arrival."""
    arrived_ms: int
    demand: Demand
    limits: Limits = NO_LIMITS
    places: tuple[Place, ...] = ()
    """Beside `limits`, one each, while it is in the queue."""
    patience: Patience = Patience.REACH
    floor: int = 0
    """The smallest output that it would go with, as decided last."""
    delays: dict[str, Delay] = field(default_factory=dict)
    """The limits that were in its way while it was in the queue, by name."""
    delayed_by: str = ""
    """The one that is, since `delayed_ms`."""
    delayed_ms: int = 0
    verdict: Decision | None = None
    """What was decided last; None before that."""
    queued: bool = False
    stale: bool = True
    """Something changed that may turn its verdict to more than waiting on."""
    over: bool = False
    """Its wait has ended; only a count is awaited."""
    counting: bool = False
    halted: bool = False
    """As it was told last; what is true now the ticket says."""
    blocked: Place | None = None
    """The account in its way, of which it needs `blocked_need`."""
    blocked_need: int = 0
    blocked_ceiling: int = 0
    asides: list[Place] = field(default_factory=list)
    walk: tuple[tuple[int, Place], ...] = ()
    """The accounts that it needs, narrow to broad by one order over all accounts, each with how much may be gone so that `walk_floor` still fits."""
    reopening: tuple[tuple[int, Place], ...] = ()
    """Of these, those whose window ends before its wait does."""
    walk_floor: int = -1
    """The floor that both were reckoned for; -1: none yet."""
    engine: str = ""
    """Where it would go if it were sent now, as was seen last; empty: nowhere."""
    seen_at: int = -1
    """`Slots.changes` at that moment: no slot was taken since, so no other was served."""
    home_until_ms: int | None = None
    """From when on any engine will do, though its home is full; None: no other was free yet."""
    position: int | None = None
    """How many calls of its flow were before it when it came."""
    flow: FlowKey = field(init=False)
    run: tuple[str, str] = field(init=False)
    lane_of_run: tuple[str, str, str] = field(init=False)

    def __post_init__(self) -> None:
        ticket = self.ticket
        self.flow = (ticket.campaign, ticket.run, ticket.lane, ticket.engines)
        self.run = (ticket.campaign, ticket.run)
        self.lane_of_run = (ticket.campaign, ticket.run, ticket.lane)

    def view(self) -> list[LimitView]:
        flow = self.flow
        return [
            LimitView(
                limit=limit,
                balance=place.balance,
                aside=place.aside_for_others(self),
                other_flows=len(place.flows) - (flow in place.flows),
                reopens=self.reopens(limit),
            )
            for limit, place in zip(self.limits, self.places, strict=True)
        ]

    def plain_view(self, balances: Balances) -> list[LimitView]:
        """As if nobody waited."""
        return [LimitView(limit=limit, balance=balances.of(limit.account), reopens=self.reopens(limit)) for limit in self.limits]

    def reopens(self, limit: Limit) -> bool:
        return limit.window_end_ms is not None and limit.window_end_ms < self.ends_ms

    @property
    def ends_ms(self) -> int:
        ends, deadline = self.arrived_ms + self.ticket.queue_ms, self.ticket.ends_at_ms
        return ends if deadline is None else min(ends, deadline)

    @property
    def clamp_ms(self) -> int:
        return self.arrived_ms + self.ticket.clamp_after_ms

    @property
    def window_ms(self) -> int | None:
        """When the first of its windows ends and its limits must be resolved anew."""
        return min((limit.window_end_ms for limit in self.limits if limit.window_end_ms is not None), default=None)

    def decided(self, verdict: Decision, now_ms: Callable[[], int]) -> None:
        """Remember the verdict, and the one account to look at before deciding again."""
        self.verdict, self.stale, self.blocked = verdict, False, None
        if isinstance(verdict, Send | Wait):
            self.floor = verdict.floor
        shortfall = verdict.shortfall if isinstance(verdict, Wait) else None
        if (shortfall.name if shortfall is not None else "") != self.delayed_by:
            self.delay(now_ms(), shortfall)
        if isinstance(verdict, Wait):
            for limit, place in zip(self.limits, self.places, strict=True):
                if limit.name == verdict.shortfall.name:
                    self.blocked, self.blocked_ceiling = place, limit.ceiling
                    self.blocked_need = need(place.account.quantity, self.demand.prompt_tokens, verdict.floor)

    def delay(self, now_ms: int, by: Shortfall | None = None) -> None:
        """From now on `by` is in its way, and what was before is not."""
        if self.delayed_by:
            before = self.delays[self.delayed_by]
            self.delays[self.delayed_by] = replace(before, ms=before.ms + now_ms - self.delayed_ms)
        self.delayed_by, self.delayed_ms = by.name if by is not None else "", now_ms
        if by is not None:
            self.delays.setdefault(by.name, Delay(shortfall=by, ms=0))

    def still_blocked(self) -> bool:
        """One look at the account that was in its way: it gives too little yet. A sunken floor is told by `hear`."""
        place = self.blocked
        if place is None or self.stale:
            return False
        balance = place.balance
        return self.blocked_ceiling - balance.reserved - balance.settled - place.aside_for_others(self) < self.blocked_need

    def hear(self, place: Place, raised: bool) -> bool:
        """What an account can ever give has changed. True: the call may have to be refused, so it must be decided again; else only its floor may differ."""
        limit = self.limits[self.places.index(place)]
        quantity, demand = place.account.quantity, self.demand
        left = ever(LimitView(limit=limit, balance=place.balance, reopens=self.reopens(limit)))
        whole = need(quantity, demand.prompt_tokens, demand.want)
        if raised or left < whole:
            self.blocked = None
        return left < need(quantity, demand.prompt_tokens, demand.least) or left <= 0 < whole


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingView:
    """A waiting call as status and metrics show it."""

    call_id: str
    campaign: str
    run: str
    lane: str
    engines: tuple[str, ...]
    """Those that can serve it."""
    position: int
    """In its flow, from 0."""
    waited_ms: int
    in_the_way: Shortfall | None
    """None: it waits for a slot, a count, or an end of the halt."""
    halted: bool
    counting: bool = False
    """Its prompt is being counted."""
    out: bool = False
    """None of its engines takes calls."""
    home: str = ""
    """The engine that it waits for, though another has a slot."""
    sets_aside: tuple[str, ...] = ()
    """Names of the limits on which room is set aside for it."""
