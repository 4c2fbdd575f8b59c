"""The decision table of the budget contract: what happens to one call, seen from one moment. Pure.

`decide` matches brute force over every possible output; its properties are tests in tests/unit/accounting/test_decision.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final as Final_
from typing import assert_never

from gateway.accounting.limit import SCOPE_ORDER, Account, Balance, Limit, Limits, Shortfall
from gateway.accounting.quantity import Amounts, Quantity, measures
from gateway.frozen import frozen


@frozen
class Demand:
    """What a call wants of its limits. Per-call caps and the model's context are already folded into `want`."""

    prompt_tokens: int
    exact: bool
    """The prompt was counted, not bounded."""
    can_count: bool
    """The model has a counter that can turn the bound into a count."""
    multiple: int
    """Choices x prompts: every output is a multiple of it."""
    want: int
    """Largest output, over all choices and prompts."""
    least: int
    """Smallest output worth sending; never more than `want`."""
    bound_lowered_want: bool
    """The prompt is a bound and `want` is smaller because of it."""
    ceiling_from: str
    """What made `want` what it is: `asked`, `default`, `context`, `call.output_tokens`."""
    enough: int
    """`enough_output_tokens` x multiple: with this a clamp is no stub."""


class Patience(StrEnum):
    """How long the call has waited picks the floor it accepts."""

    REACH = "reach"
    ENOUGH = "enough"
    LEAST = "least"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitView:
    """One limit of the call at this moment."""

    limit: Limit
    balance: Balance
    aside: int = 0
    """Set aside on this account for another call."""
    other_flows: int = 0
    """Other flows that wait on this limit."""
    reopens: bool = False
    """The window ends before this call's wait would."""


@frozen
class Send:
    output: int
    clamped_by: str | None = None
    """Name of the limit that made output smaller than wanted."""
    floor: int = 0
    """The smallest output that it would go with now, should it have to wait for a slot."""
    clamp: Shortfall | None = None
    """That limit with its numbers at this moment."""


@dataclass(frozen=True, slots=True)
class Count:
    """The prompt must be counted before anything can be decided."""


@dataclass(frozen=True, slots=True)
class Final:
    shortfall: Shortfall


@dataclass(frozen=True, slots=True)
class Wait:
    shortfall: Shortfall
    floor: int = 0
    """The smallest output that it would go with now."""


Decision = Send | Count | Final | Wait


# Bound once: looking up an enum's member costs more than the comparison, and these are asked for eight limits a call.
_REQUESTS: Final_ = Quantity.REQUESTS
_INPUT: Final_ = Quantity.INPUT_TOKENS
_OUTPUT: Final_ = Quantity.OUTPUT_TOKENS
_TOTAL: Final_ = Quantity.TOTAL_TOKENS
_CONCURRENT: Final_ = Quantity.CONCURRENT
_TOOL_CALLS: Final_ = Quantity.TOOL_CALLS
_RUNS: Final_ = Quantity.RUNS
_NOTHING: Final_ = (0, 0)


def need(quantity: Quantity, prompt_tokens: int, output: int) -> int:
    """What a call with this output takes of a limit; 0: the limit does not concern it."""
    if quantity is _OUTPUT:
        return output
    if quantity is _TOTAL:
        return prompt_tokens + output
    if quantity is _INPUT:
        return prompt_tokens
    if quantity is _REQUESTS or quantity is _CONCURRENT or quantity is _TOOL_CALLS:
        return 1
    if quantity is _RUNS:
        return 0
    assert_never(quantity)


def holds(quantity: Quantity, prompt_tokens: int, output: int) -> int:
    """What it takes away from others until it is settled: tool calls need one left and hold none."""
    return 0 if quantity is _TOOL_CALLS else need(quantity, prompt_tokens, output)


def ever(seen: LimitView) -> int:
    """What the limit could give this call if it waited: a request that was sent never comes back, a window that opens in time counts as open."""
    ceiling = seen.limit.ceiling
    if seen.reopens:
        return ceiling
    spent = seen.balance.settled
    if seen.limit.account.quantity is _REQUESTS:
        spent += seen.balance.reserved
    return ceiling - spent


def now(seen: LimitView) -> int:
    return seen.limit.ceiling - seen.balance.settled - seen.balance.reserved - seen.aside


def decide(view: Sequence[LimitView], demand: Demand, patience: Patience) -> Decision:
    """The contract's table, first row that fits. The verdict does not depend on the order of `view`."""
    tight = _tight(view, demand)
    if not tight and (demand.exact or not demand.bound_lowered_want):
        return Send(output=demand.want, floor=_floor(demand.want, demand, patience))
    over = spent(tight, demand)
    if over is not None:
        return over
    if not demand.exact and demand.can_count:
        return Count()
    reach, reach_by = _room(tight, demand, ever)
    if reach < demand.least and reach_by is not None:
        return Final(shortfall_of(reach_by.limit, reach_by.balance, demand))
    free, free_by = _room(tight, demand, now)
    floor = _floor(reach, demand, patience)
    if free >= floor:
        return _clamped(reach_by if free >= reach else free_by, free, floor, demand, patience)
    assert free_by is not None  # free < floor <= want, so a limit lowered it
    return Wait(shortfall_of(free_by.limit, free_by.balance, demand), floor)


def unhindered(limits: Limits, balances: Mapping[str, tuple[int, int]], demand: Demand, patience: Patience) -> Send | None:
    """What `decide` says where every limit gives all that the call wants at once and nobody waits; None where it must be asked. Nearly every call.

    `balances`: reserved and settled by the account's key.
    """
    if demand.bound_lowered_want and not demand.exact:
        return None
    prompt, want = demand.prompt_tokens, demand.want
    needs = measures(Amounts(requests=1, input_tokens=prompt, output_tokens=want, tool_calls=1, concurrent=1))  # `need` of each
    for key, quantity, ceiling in limits.rows:
        reserved, settled = balances.get(key, _NOTHING)
        if ceiling - settled - reserved < needs[quantity] and needs[quantity]:
            return None
    return Send(output=want, floor=_floor(want, demand, patience))


def _tight(view: Sequence[LimitView], demand: Demand) -> list[LimitView]:
    """Limits that cannot give now all that the call wants. The others decide nothing: what they give now they can give ever."""
    tight = []
    prompt, want = demand.prompt_tokens, demand.want
    for seen in view:
        whole = need(seen.limit.account.quantity, prompt, want)
        if now(seen) < whole and whole:
            tight.append(seen)
    return tight


def spent(view: Sequence[LimitView], demand: Demand) -> Final | None:
    """A limit that the call needs and that has nothing left, whatever the prompt turns out to be; the narrowest such."""
    found: LimitView | None = None
    for seen in view:
        if ever(seen) > 0 or need(seen.limit.account.quantity, demand.prompt_tokens, demand.want) == 0:
            continue
        if found is None or narrowness(seen.limit.account) < narrowness(found.limit.account):
            found = seen
    return None if found is None else Final(shortfall_of(found.limit, found.balance, demand))


def shortfall_of(limit: Limit, balance: Balance, demand: Demand) -> Shortfall:
    return Shortfall(
        name=limit.name,
        ceiling=limit.ceiling,
        settled=balance.settled,
        reserved=balance.reserved,
        asked=need(limit.account.quantity, demand.prompt_tokens, demand.want),
        resets_at_ms=limit.window_end_ms,
        origin=limit.origin,
    )


def narrowness(account: Account) -> tuple[int, int, str]:
    """One order over all accounts, narrow first: of several limits that decide, the first is named, and asides are taken along it."""
    return SCOPE_ORDER[account.scope], -(bool(account.lane) + bool(account.model)), account.key


def _floor(reach: int, demand: Demand, patience: Patience) -> int:
    match patience:
        case Patience.REACH:
            return reach
        case Patience.ENOUGH:
            return min(reach, max(demand.least, demand.enough))
        case Patience.LEAST:
            return demand.least
        case _:
            assert_never(patience)


def _clamped(by: LimitView | None, free: int, floor: int, demand: Demand, patience: Patience) -> Send:
    if by is None:
        return Send(output=free, floor=floor)
    output = free
    if by.other_flows and patience is not Patience.LEAST:
        share = max(demand.enough, free // (1 + by.other_flows))
        output = max(min(free, share - share % demand.multiple), demand.least)
    return Send(output=output, clamped_by=by.limit.name, floor=floor, clamp=shortfall_of(by.limit, by.balance, demand))


def _room(view: Sequence[LimitView], demand: Demand, gives: Callable[[LimitView], int]) -> tuple[int, LimitView | None]:
    """The largest output that every limit gives, and the limit that made it so: -1 where one stands in the way that no smaller output helps."""
    room, by = demand.want, None
    for seen in view:
        account = seen.limit.account
        whole = need(account.quantity, demand.prompt_tokens, demand.want)
        given = gives(seen)
        if given >= whole or whole == 0:
            continue
        output = _largest(account.quantity, given, demand)
        if output < room or (by is not None and output == room and narrowness(account) < narrowness(by.limit.account)):
            room, by = output, seen
    return room, by


def _largest(quantity: Quantity, given: int, demand: Demand) -> int:
    """The largest multiple whose need is met by `given`, which is less than what `want` needs."""
    if quantity is _TOTAL:
        given -= demand.prompt_tokens
        if given < 0 and demand.prompt_tokens > 0:
            return -1
    elif quantity is not _OUTPUT:
        return -1
    return max(given, 0) // demand.multiple * demand.multiple
