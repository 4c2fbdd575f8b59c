"""Each simpler rule that does not do, with the scene in which it shows: the scene holds, and breaks as soon as that rule is put in the place of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.accounting.balances import postings
from gateway.accounting.decision import Decision, Demand, LimitView, Patience, Send, decide, narrowness, need, now
from gateway.accounting.quantity import Amounts, Quantity
from gateway.upstream import places, turns
from gateway.upstream.call import Admission, Refusal, Ticket
from gateway.upstream.flows import Flows
from gateway.upstream.waiter import Place, Waiter
from tests.unit.accounting.test_decision_mutants import MUTANTS, decide_with
from tests.unit.upstream import test_turns_rules as rules
from tests.unit.upstream.world import World

Patch = Callable[[pytest.MonkeyPatch], None]
Decide = Callable[[Sequence[LimitView], Demand, Patience], Decision]


# The rules, each put in the place of ours.


def deciding(other: Decide) -> Patch:

    def patched(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(turns, "decide", other)
        patch.setattr(turns, "unhindered", lambda *_: None)  # every call asks the other rule

    return patched


def mutant(named: str) -> Patch:
    return deciding(decide_with(*MUTANTS[named]))


def only_the_tightest(view: Sequence[LimitView], demand: Demand, patience: Patience) -> Decision:
    """Whatever it counts: the smallest number that is left, but none that is used up."""
    left = [now(seen) for seen in view if now(seen) > 0]
    return Send(output=min([demand.want, *left]), clamped_by=view[0].limit.name)


def prompt_in_every_need(view: Sequence[LimitView], demand: Demand, patience: Patience) -> Decision:
    whole = [replace(seen, limit=replace(seen.limit, account=replace(seen.limit.account, quantity=Quantity.TOTAL_TOKENS))) for seen in view]
    return decide(whole, demand, patience)


def reserve_then_queue(patch: pytest.MonkeyPatch) -> None:
    queue = turns.Turns._enqueue

    def enqueue(self: turns.Turns, waiter: Waiter) -> None:
        held = Amounts(requests=1, concurrent=1, input_tokens=waiter.demand.prompt_tokens, output_tokens=waiter.demand.want)
        self._balances.apply(postings([limit.account for limit in waiter.limits], hold=held))
        queue(self, waiter)

    patch.setattr(turns.Turns, "_enqueue", enqueue)


def nobody_overtakes(patch: pytest.MonkeyPatch) -> None:
    """Whoever waits, if only for a slot, bars all its accounts."""
    consider = turns.Turns._consider

    def considered(self: turns.Turns, waiter: Waiter) -> None:
        consider(self, waiter)
        if waiter.queued:
            bar(waiter, waiter.places)

    patch.setattr(turns.Turns, "_consider", considered)


def bar(waiter: Waiter, barred: Sequence[Place]) -> None:
    for place in barred:
        if place.holder is None:
            place.holder = waiter
            waiter.asides.append(place)


def one_turn_an_engine(patch: pytest.MonkeyPatch) -> None:
    """The heads at the other engines are before it on every account that they share."""

    def decided(self: turns.Turns, waiter: Waiter) -> Decision:
        view = []
        for seen in waiter.view():
            others = [other for other in self.queue if other.ticket.engines != waiter.ticket.engines]
            aside = sum(need(seen.limit.account.quantity, other.demand.prompt_tokens, other.demand.want) for other in others)
            view.append(LimitView(limit=seen.limit, balance=seen.balance, aside=aside))
        verdict = decide(view, waiter.demand, waiter.patience)
        waiter.decided(verdict, self._now_ms)
        return verdict

    patch.setattr(turns.Turns, "_decide", decided)


def barred_only_while_short(patch: pytest.MonkeyPatch) -> None:
    consider = turns.Turns._consider

    def considered(self: turns.Turns, waiter: Waiter) -> None:
        consider(self, waiter)
        if waiter.queued and isinstance(waiter.verdict, Send):
            self.queue.places.drop_asides(waiter)

    patch.setattr(turns.Turns, "_consider", considered)


def broad_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(places, "narrowness", lambda account: tuple(-part for part in narrowness(account)[:2]))


def in_no_order(patch: pytest.MonkeyPatch) -> None:
    plan = places._plan_walk

    def planned(waiter: Waiter) -> None:
        plan(waiter)
        if waiter.sequence % 2:
            waiter.walk = waiter.walk[::-1]

    patch.setattr(places, "_plan_walk", planned)


def one_order_a_run(patch: pytest.MonkeyPatch) -> None:
    made = Waiter.__post_init__

    def one_lane(self: Waiter) -> None:
        made(self)
        self.flow = (*self.run, "", self.ticket.engines)

    patch.setattr(Waiter, "__post_init__", one_lane)


def fair_by_cost(patch: pytest.MonkeyPatch) -> None:
    """Whoever was sent the fewest tokens goes first."""
    cost: Counter[tuple[str, str]] = Counter()
    turn, commit = Flows.turn, World.commit

    def costed(self: World, ticket: Ticket, admission: Admission) -> None:
        cost[ticket.campaign, ticket.run] += admission.output
        commit(self, ticket, admission)

    def by_cost(self: Flows, waiter: Waiter) -> Any:
        return (cost[waiter.run], *turn(self, waiter))

    patch.setattr(World, "commit", costed)
    patch.setattr(Flows, "turn", by_cost)


def a_days_end_refuses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Waiter, "reopens", lambda self, limit: False)


def a_halt_refuses(patch: pytest.MonkeyPatch) -> None:
    queue = turns.Turns._enqueue

    def enqueue(self: turns.Turns, waiter: Waiter) -> None:
        if waiter.ticket.halted():
            self.refuse(waiter, Refusal(code="campaign_halted", final=False))
        else:
            queue(self, waiter)

    patch.setattr(turns.Turns, "_enqueue", enqueue)


# Scenes that are not among the rules' own.


def a_long_prompt_and_a_short_output() -> None:
    world = World({"run.output_tokens": 20_000}, {"e": 1})
    world.call("one", prompt=30_000, asked=1_000)
    assert world.output("one") == 1_000


def one_request_of_one_is_spent() -> None:
    world = World({"run.requests": 1, "run.total_tokens": 112}, {"e": 1}, least=1)
    world.call("first", asked=90)
    world.settle("first", 90)
    world.call("second", asked=4)
    assert world.refusals["second"].final and world.order == ["first"]


def two_calls_on_what_is_left_for_one_and_a_half() -> None:
    world = World({"run.output_tokens": 1_500}, {"e": 2})
    world.call("first", asked=1_000)
    world.call("second", asked=1_000)
    world.time.advance(10_000)
    assert world.output("second") == 500


def a_bound_four_times_the_prompt() -> None:
    world = World({"run.input_tokens": 30_000}, {"e": 1})
    world.call("one", prompt=9_000, bound=36_000)
    world.counted("one")
    assert world.order == ["one"]


def slot_and_room_are_never_free_together() -> None:
    world = World({"campaign.output_tokens": 100}, {"e": 1, "f": 3})
    world.call("takes-room", run="s", engine="f", asked=60)
    world.call("large", run="t", asked=100, over="refuse")
    world.call("takes-the-slot", run="u", campaign="d", asked=10)
    world.time.tick()
    assert world.order == ["takes-room", "takes-the-slot"]
    world.settle("takes-room", 0)
    world.call("takes-room-again", run="s", engine="f", asked=60)
    world.time.tick()
    world.settle("takes-the-slot", 0)
    assert world.order[-1] == "large"


def one_dear_call() -> None:
    world = World({}, {"e": 1})
    world.call("dear", run="s", asked=5_000)
    world.call("t-0", run="t", asked=10)
    world.settle("dear")
    for number in range(1, 20):
        world.call(f"t-{number}", run="t", asked=10)
    world.call("again", run="s", asked=10)
    for _ in range(2):
        world.settle(world.order[-1])
    assert "again" in world.order


SIMPLER: dict[str, tuple[Callable[[], None], Patch]] = {
    "reserve, then queue": (rules.test_who_waits_holds_neither_slot_nor_room, reserve_then_queue),
    "no waiting, clamp at once": (
        rules.test_a_call_takes_less_than_enough_only_at_its_wait_s_end,
        deciding(lambda view, demand, _: decide(view, demand, Patience.LEAST)),
    ),
    "prompt added to every limit's need": (a_long_prompt_and_a_short_output, deciding(prompt_in_every_need)),
    "the tightest limit decides": (one_request_of_one_is_spent, deciding(only_the_tightest)),
    "nobody else holds a reservation": (two_calls_on_what_is_left_for_one_and_a_half, mutant("now forgets what is reserved")),
    "a bound decides": (a_bound_four_times_the_prompt, mutant("nothing is ever counted")),
    "requests held by running calls are waited for": (
        rules.test_requests_held_by_running_calls_are_not_waited_for,
        mutant("ever takes a request that was sent for one that may come back"),
    ),
    "nobody overtakes on a shared account": (rules.test_who_waits_for_a_busy_engine_bars_nobody_at_an_idle_one, nobody_overtakes),
    "one turn per engine": (rules.test_two_heads_with_free_engines_do_not_bar_each_other, one_turn_an_engine),
    "room barred only while short": (slot_and_room_are_never_free_together, barred_only_while_short),
    "set aside broad scope first": (rules.test_later_calls_pass_beside_what_is_set_aside, broad_first),
    "set aside in no order": (rules.test_two_calls_that_each_need_what_the_other_needs_both_go, in_no_order),
    "one order a run": (rules.test_thirty_background_calls_do_not_hold_up_one_of_another_lane_or_engine, one_order_a_run),
    "fairness by cost": (one_dear_call, fair_by_cost),
    "clamp only at the end of the wait": (
        rules.test_a_call_waits_ten_seconds_for_all_and_takes_enough_then,
        deciding(lambda view, demand, patience: decide(view, demand, Patience.REACH if patience is Patience.ENOUGH else patience)),
    ),
    "a day's end is a refusal": (rules.test_nine_seconds_before_midnight_a_call_waits_for_the_new_day, a_days_end_refuses),
    "a halt refuses at once": (rules.test_a_halted_campaign_s_calls_wait_and_go_on_resume, a_halt_refuses),
}


@pytest.mark.parametrize("scene", [scene for scene, _ in SIMPLER.values()], ids=SIMPLER.keys())
def test_the_scene_goes_well_with_our_rule(scene: Callable[[], None]) -> None:
    scene()


@pytest.mark.parametrize(("scene", "simpler"), SIMPLER.values(), ids=SIMPLER.keys())
def test_with_the_simpler_rule_it_does_not(scene: Callable[[], None], simpler: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    simpler(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        scene()
