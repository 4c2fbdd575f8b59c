"""The decision table, held against brute force over every output, and against its properties."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.accounting.decision import Count, Decision, Demand, Final, LimitView, Patience, Send, Wait, decide, narrowness, need, unhindered
from gateway.accounting.limit import Balance, Limits, Scope
from gateway.accounting.quantity import Quantity
from tests.unit.accounting.decision_rows import TABLE, demand_of, limit_of

O = Quantity.OUTPUT_TOKENS  # noqa: E741
SCOPES = (Scope.RUN, Scope.CAMPAIGN, Scope.GATEWAY)
QUANTITIES = (Quantity.REQUESTS, Quantity.INPUT_TOKENS, Quantity.OUTPUT_TOKENS, Quantity.TOTAL_TOKENS, Quantity.CONCURRENT, Quantity.TOOL_CALLS)
RANK = {Final: 0, Wait: 1, Send: 2}


@st.composite
def views(draw: st.DrawFn) -> list[LimitView]:
    kinds = draw(st.lists(st.tuples(st.sampled_from(SCOPES), st.sampled_from(QUANTITIES), st.sampled_from(["", "a"])), max_size=5, unique=True))
    view = []
    for scope, quantity, lane in kinds:
        small = quantity in (Quantity.REQUESTS, Quantity.CONCURRENT, Quantity.TOOL_CALLS)
        amounts = st.integers(0, 3 if small else 16)
        reopens = draw(st.booleans()) and quantity is not Quantity.CONCURRENT
        ceiling, reserved, settled = draw(st.integers(1, 4 if small else 40)), draw(amounts), draw(amounts)
        if quantity is Quantity.CONCURRENT:
            settled = 0
        if quantity is Quantity.TOOL_CALLS:
            reserved = 0
        limit = limit_of(scope, quantity, ceiling, lane, 1 if reopens else None)
        aside = draw(st.one_of(st.just(0), amounts)) if quantity is not Quantity.TOOL_CALLS else 0
        view.append(LimitView(limit=limit, balance=Balance(reserved, settled), aside=aside, other_flows=draw(st.integers(0, 3)), reopens=reopens))
    return sorted(view, key=lambda seen: narrowness(seen.limit.account))


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    multiple = draw(st.integers(1, 3))
    each = draw(st.integers(0, 12))
    exact = draw(st.booleans())
    return Demand(
        prompt_tokens=draw(st.integers(0, 12)),
        exact=exact,
        can_count=draw(st.booleans()),
        multiple=multiple,
        want=multiple * each,
        least=multiple * draw(st.integers(0, each)),
        bound_lowered_want=not exact and draw(st.booleans()),
        ceiling_from="asked",
        enough=multiple * draw(st.integers(0, 8)),
    )


def brute(view: list[LimitView], demand: Demand, patience: Patience) -> tuple[object, ...]:
    """The contract's table, tried on every output one by one. Nothing of it is shared with the code but the order of narrowness."""

    def needs(seen: LimitView, output: int) -> int:
        prompt = demand.prompt_tokens
        return {"requests": 1, "concurrent": 1, "tool_calls": 1, "input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output}[
            seen.limit.account.quantity
        ]

    def could(seen: LimitView) -> int:
        if seen.reopens:
            return seen.limit.ceiling
        sent = seen.balance.reserved if seen.limit.account.quantity == "requests" else 0
        return seen.limit.ceiling - seen.balance.settled - sent

    def can(seen: LimitView) -> int:
        return seen.limit.ceiling - seen.balance.settled - seen.balance.reserved - seen.aside

    outputs = range(0, demand.want + 1, demand.multiple)
    order = sorted(view, key=lambda seen: narrowness(seen.limit.account))

    def largest(seen: LimitView, gives: int) -> int:
        return max((output for output in outputs if needs(seen, output) <= gives or needs(seen, output) == 0), default=-1)

    def room(gives: dict[int, int]) -> tuple[int, LimitView | None]:
        each = [(largest(seen, gives[id(seen)]), seen) for seen in order]
        least = min([demand.want, *(output for output, _ in each)])
        return least, next((seen for output, seen in each if output == least < demand.want or output == least == -1), None)

    for seen in order:
        if could(seen) <= 0 and needs(seen, demand.want) > 0:
            return "final", seen.limit.name
    reach, reach_by = room({id(seen): could(seen) for seen in order})
    free, free_by = room({id(seen): can(seen) for seen in order})
    if free == demand.want and not demand.bound_lowered_want:
        return "send", demand.want, None
    if not demand.exact and demand.can_count:
        return ("count",)
    if reach < demand.least and reach_by:
        return "final", reach_by.limit.name
    floors = {Patience.REACH: reach, Patience.ENOUGH: min(reach, max(demand.least, demand.enough)), Patience.LEAST: demand.least}
    if free < floors[patience]:
        assert free_by is not None
        return "wait", free_by.limit.name, floors[patience]
    by = reach_by if free >= reach else free_by
    if free == demand.want or by is None:
        return "send", free, None
    if patience is Patience.LEAST or by.other_flows == 0:
        return "send", free, by.limit.name
    most = max(demand.enough, free / (1 + by.other_flows))
    fair = max((output for output in outputs if output <= min(free, most)), default=0)
    return "send", max(fair, demand.least), by.limit.name


def told(decision: Decision) -> tuple[object, ...]:
    match decision:
        case Send():
            return "send", decision.output, decision.clamped_by
        case Count():
            return ("count",)
        case Final():
            return "final", decision.shortfall.name
        case Wait():
            return "wait", decision.shortfall.name, decision.floor


@settings(max_examples=400, deadline=None)
@given(views(), demands(), st.sampled_from(Patience), st.randoms(use_true_random=False))
def test_a_decision_equals_brute_force_over_every_output_in_any_order_of_limits(
    view: list[LimitView], demand: Demand, patience: Patience, shuffler: random.Random
) -> None:
    expected = brute(view, demand, patience)
    assert told(decide(view, demand, patience)) == expected
    shuffled = list(view)
    shuffler.shuffle(shuffled)
    assert told(decide(shuffled, demand, patience)) == expected


@settings(max_examples=100, deadline=None)
@given(views(), demands(), st.sampled_from(Patience))
def test_what_is_sent_lies_between_least_and_want_is_a_multiple_fits_every_limit_and_a_clamp_names_one(
    view: list[LimitView], demand: Demand, patience: Patience
) -> None:
    decision = decide(view, demand, patience)
    if not isinstance(decision, Send):
        return
    assert demand.least <= decision.output <= demand.want
    assert decision.output % demand.multiple == 0
    for seen in view:
        needed = need(seen.limit.account.quantity, demand.prompt_tokens, decision.output)
        assert needed == 0 or needed <= seen.limit.ceiling - seen.balance.settled - seen.balance.reserved - seen.aside
    assert (decision.output < demand.want) == (decision.clamped_by is not None)
    assert decision.clamped_by is None or decision.clamped_by in {seen.limit.name for seen in view}


@settings(max_examples=100, deadline=None)
@given(views(), demands(), st.sampled_from(Patience))
def test_with_nothing_reserved_or_set_aside_a_call_waits_only_for_a_window(view: list[LimitView], demand: Demand, patience: Patience) -> None:
    still = [replace(seen, balance=Balance(0, seen.balance.settled), aside=0) for seen in view]
    decision = decide(still, demand, patience)
    if isinstance(decision, Wait):
        assert any(seen.reopens and seen.limit.name == decision.shortfall.name for seen in still)


@settings(max_examples=100, deadline=None)
@given(views(), demands(), st.sampled_from(Patience), st.data())
def test_a_release_never_worsens_a_verdict(view: list[LimitView], demand: Demand, patience: Patience, data: st.DataObject) -> None:
    before = decide(view, demand, patience)
    released = [
        replace(
            seen,
            balance=Balance(data.draw(st.integers(0, seen.balance.reserved)), seen.balance.settled),
            aside=data.draw(st.integers(0, seen.aside)),
        )
        for seen in view
    ]
    after = decide(released, demand, patience)
    if not isinstance(before, Count) and not isinstance(after, Count):
        assert RANK[type(after)] >= RANK[type(before)]


@settings(max_examples=100, deadline=None)
@given(views(), demands())
def test_more_patience_never_worsens_a_verdict(view: list[LimitView], demand: Demand) -> None:
    verdicts = [decide(view, demand, patience) for patience in (Patience.REACH, Patience.ENOUGH, Patience.LEAST)]
    if isinstance(verdicts[0], Count):
        assert all(isinstance(verdict, Count) for verdict in verdicts)
        return
    ranks = [RANK[type(verdict)] for verdict in verdicts]
    assert ranks == sorted(ranks)
    outputs = [verdict.output for verdict in verdicts if isinstance(verdict, Send)]
    assert not outputs or outputs[-1] == max(outputs)


@settings(max_examples=100, deadline=None)
@given(views(), demands(), st.sampled_from(Patience), st.sampled_from(Patience), st.data())
def test_final_stays_final_under_any_settlement_or_reservation(
    view: list[LimitView], demand: Demand, patience: Patience, later: Patience, data: st.DataObject
) -> None:
    before = decide(view, demand, patience)
    if not isinstance(before, Final):
        return
    moved = []
    for seen in view:
        reserved = data.draw(st.integers(0, seen.balance.reserved + 8)) if seen.limit.account.quantity is not Quantity.TOOL_CALLS else 0
        gone = max(0, seen.balance.reserved - reserved)
        # a request that was sent comes back only as settled
        least_settled = gone if seen.limit.account.quantity is Quantity.REQUESTS else 0
        settled = seen.balance.settled + data.draw(st.integers(least_settled, least_settled + 8))
        moved.append(replace(seen, balance=Balance(reserved, settled)))
    assert isinstance(decide(moved, demand, later), Final)


@settings(max_examples=100, deadline=None)
@given(views(), demands(), st.sampled_from(Patience))
def test_a_bound_with_a_counter_is_only_sent_as_it_is_or_counted_or_refused_by_a_spent_limit(view: list[LimitView], demand: Demand, patience: Patience) -> None:
    bound = replace(demand, exact=False, can_count=True)
    decision = decide(view, bound, patience)
    match decision:
        case Send():
            assert decision.output == demand.want and decision.clamped_by is None and not bound.bound_lowered_want
        case Final():
            spent = next(seen for seen in view if seen.limit.name == decision.shortfall.name)
            assert spent.balance.settled + (spent.balance.reserved if spent.limit.account.quantity is Quantity.REQUESTS else 0) >= spent.limit.ceiling
        case Wait():
            raise AssertionError("decided on a bound")


@pytest.mark.parametrize(("view", "demand", "patience", "verdict"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_rows_of_the_table(view: list[LimitView], demand: Demand, patience: Patience, verdict: tuple[object, ...]) -> None:
    assert told(decide(view, demand, patience)) == verdict
    assert brute(view, demand, patience) == verdict


def test_a_shortfall_carries_the_numbers_of_its_limit() -> None:
    limit = replace(limit_of(Scope.RUN, O, 100, window_end_ms=86_400_000), origin="policies/a.toml:7")
    decision = decide([LimitView(limit=limit, balance=Balance(2, 95))], demand_of(50), Patience.REACH)
    assert isinstance(decision, Final)
    shortfall = decision.shortfall
    assert (shortfall.name, shortfall.ceiling, shortfall.settled, shortfall.reserved, shortfall.asked) == ("run.day.output_tokens", 100, 95, 2, 50)
    assert (shortfall.resets_at_ms, shortfall.origin) == (86_400_000, "policies/a.toml:7")


@given(views(), demands(), st.sampled_from(Patience))
@settings(max_examples=400, deadline=None)
def test_what_nothing_hinders_is_what_the_table_sends_as_it_is(view: list[LimitView], demand: Demand, patience: Patience) -> None:
    plain = [LimitView(limit=seen.limit, balance=seen.balance, reopens=seen.reopens) for seen in view]
    balances = {seen.limit.account.key: tuple(seen.balance) for seen in view}
    at_once = unhindered(Limits(seen.limit for seen in view), balances, demand, patience)
    decided = decide(plain, demand, patience)
    as_it_is = isinstance(decided, Send) and decided.output == demand.want and decided.clamped_by is None
    lowered = demand.bound_lowered_want and not demand.exact
    assert at_once == (decided if as_it_is and not lowered else None)
