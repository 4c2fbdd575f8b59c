"""One scene for each thing that a simpler rule did wrong, and for each row of the table that needs a queue to be seen."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.upstream.promises import all_promises, holders
from tests.unit.upstream.world import DAY_MS, World


def test_who_waits_holds_neither_slot_nor_room() -> None:
    world = World({"run.output_tokens": 1_000}, {"e": 1})
    world.call("first")
    world.call("second")
    world.call("third", run="s")
    assert world.waiting() == ["second", "third"]
    assert [balance.reserved for _, balance in world.balances] == [100]
    assert world.turns.busy("e") == 1


def test_of_a_hundred_calls_at_once_against_seven_requests_exactly_seven_are_sent() -> None:
    world = World({"run.requests": 7}, {"e": 1_000})
    for number in range(100):
        world.call(str(number))
    assert world.order == [str(number) for number in range(7)]
    assert all(world.refusals[str(number)].code == "run_budget_reached" for number in range(7, 100))


def test_requests_held_by_running_calls_are_not_waited_for() -> None:
    world = World({"run.requests": 1}, {"e": 1})
    for number in range(8):
        world.call(str(number))
    assert world.order == ["0"] and world.waiting() == []
    shortfall = world.refusals["7"].shortfall
    assert shortfall is not None
    assert (shortfall.name, shortfall.ceiling, shortfall.settled, shortfall.reserved, shortfall.asked) == ("run.requests", 1, 0, 1, 1)


def test_who_waits_for_a_busy_engine_bars_nobody_at_an_idle_one() -> None:
    world = World({"campaign.output_tokens": 250}, {"a": 1, "b": 1})
    world.call("busy", engine="a")
    world.call("waits", run="s", engine="a")
    world.call("goes", run="t", engine="b")
    world.time.tick()
    assert world.order == ["busy", "goes"]


def test_two_heads_with_free_engines_do_not_bar_each_other() -> None:
    world = World({"campaign.output_tokens": 150}, {"a": 1, "b": 1})
    world.halt()
    world.call("one", run="s", engine="a")
    world.call("two", run="t", engine="b")
    world.resume()
    assert world.order == ["one"] and world.waiting() == ["two"]
    world.settle("one", 50)
    assert world.order == ["one", "two"]


def test_room_set_aside_is_kept_while_the_slot_is_taken_by_another() -> None:
    world = World({"campaign.output_tokens": 100}, {"e": 2})
    world.call("holder-of-room", run="s", asked=60)
    world.call("large", run="t", asked=100)
    assert len(holders(world)) == 1
    world.call("small", run="u", asked=20)
    world.settle("holder-of-room", 0)
    assert world.order == ["holder-of-room", "large"]
    assert world.waiting() == ["small"], "it would have taken what was set aside"


def test_later_calls_pass_beside_what_is_set_aside() -> None:
    world = World({"run.output_tokens": 100, "campaign.output_tokens": 1_000}, {"e": 5})
    world.call("own", run="s", asked=60)
    world.call("waits", run="s", lane="g", asked=100)
    world.call("beside", run="t", asked=100)
    world.time.tick()
    assert world.order == ["own", "beside"]
    assert [account.scope for account in holders(world)] == ["run"], "a run that waits for its own calls does not hold the campaign"


def test_two_calls_that_each_need_what_the_other_needs_both_go() -> None:
    world = World({"run.output_tokens": 200, "campaign.output_tokens": 100, "campaign.total_tokens": 120}, {"a": 2, "b": 2})
    world.call("x", run="s", engine="a", asked=50)
    world.call("one", run="t", engine="a", asked=100, over="refuse")
    world.call("two", run="u", engine="b", asked=90, over="refuse")
    world.time.tick()
    assert world.waiting() == ["one", "two"]
    world.settle("x", 0)
    assert world.order == ["x", "one"]
    world.settle("one", 0)
    assert world.order == ["x", "one", "two"]


def test_thirty_background_calls_do_not_hold_up_one_of_another_lane_or_engine() -> None:
    world = World({}, {"a": 1, "b": 1})
    for number in range(30):
        world.call(f"b{number}", lane="background", engine="a")
    world.call("foreground", lane="f", engine="a")
    world.call("idle", lane="background", engine="b")
    world.time.tick()
    assert world.order == ["b0", "idle"]
    world.settle("b0")
    assert world.order[-1] == "foreground"


@pytest.mark.parametrize("runs", [2, 5])
def test_a_call_is_served_after_at_most_one_call_of_each_other_waiting_run(runs: int) -> None:
    """12: however many the others queue."""
    world = World({"campaign.output_tokens": 10**6}, {"e": 1})
    for number in range(50):
        for run in range(runs):
            world.call(f"{run}-{number}", run=f"r{run}")
    for turn in range(runs * 3 + 1):
        world.settle(world.order[-1])
        if turn == runs + 1:
            world.call("late", run="quiet")
            asked_at = len(world.order)
    assert world.order.index("late") - asked_at <= runs
    between = Counter(name.split("-")[0] for name in world.order[asked_at : world.order.index("late")])
    assert all(count <= 1 for count in between.values())


def test_lanes_of_a_run_take_turns() -> None:
    world = World({}, {"e": 1})
    for number in range(4):
        world.call(f"f{number}", lane="f")
    for number in range(4):
        world.call(f"g{number}", lane="g")
    for _ in range(7):
        world.settle(world.order[-1])
    assert world.order == ["f0", "g0", "f1", "g1", "f2", "g2", "f3", "g3"]


def test_a_run_with_two_lanes_gets_no_two_turns() -> None:
    world = World({}, {"e": 2})
    world.call("x", run="s")
    world.call("y", run="t")
    for name, run, lane in (("s-f", "s", "f"), ("s-g", "s", "g"), ("t-f", "t", "f")):
        world.call(name, run=run, lane=lane)
    world.turns.set_slots("e", 4)
    world.time.tick()
    assert world.order == ["x", "y", "s-g", "t-f"]


def test_who_is_barred_only_by_what_is_set_aside_for_another_sets_nothing_aside() -> None:
    world = World({"run.output_tokens": 1_000, "campaign.output_tokens": 100}, {"e": 9})
    world.call("x", run="s", asked=60)
    world.call("holder", run="t", asked=100)
    world.call("barred", run="u", asked=30)
    world.time.tick()
    assert {(account.subject, waiter.ticket.call_id) for account, waiter in holders(world).items()} == {("c/t", "holder"), ("c", "holder")}


def test_who_has_room_set_aside_takes_broader_accounts_too_though_no_slot_is_free() -> None:
    world = World({"run.output_tokens": 100, "campaign.output_tokens": 150}, {"e": 3, "f": 1})
    world.call("x", run="s", asked=60)
    world.call("y", run="t", asked=60, engine="f")
    world.call("holder", run="s", asked=100)
    world.call("z", run="u", asked=30)
    world.time.tick()
    assert world.order == ["x", "y", "z"] and [account.scope for account in holders(world)] == ["run"]
    world.turns.set_slots("e", 1)
    world.settle("x", 0)
    assert [account.scope for account in holders(world)] == ["run", "campaign"]


def test_a_call_is_clamped_at_once_when_only_what_is_settled_stands_in_the_way() -> None:
    world = World({"run.output_tokens": 150}, {"e": 1})
    world.call("first")
    world.settle("first")
    world.call("second")
    assert world.output("second") == 50 and world.turns.counts.clamped == 1


def test_a_call_waits_ten_seconds_for_all_and_takes_enough_then() -> None:
    world = World({"run.output_tokens": 150}, {"e": 2})
    world.call("first")
    world.call("second")
    world.time.advance(9_999)
    assert world.waiting() == ["second"]
    world.time.advance(1)
    assert world.output("second") == 50
    assert world.running["second"].admission.waited_ms == 10_000


def test_a_call_takes_less_than_enough_only_at_its_wait_s_end() -> None:
    world = World({"run.output_tokens": 130}, {"e": 2})
    world.call("first")
    world.call("second")
    world.time.advance(119_999)
    assert world.waiting() == ["second"]
    world.time.advance(1)
    assert world.output("second") == 30


def test_a_wait_that_is_over_without_room_ends_in_a_passing_refusal() -> None:
    world = World({"run.output_tokens": 105}, {"e": 2})
    world.call("first")
    world.call("second")
    world.time.advance(120_000)
    refusal = world.refusals["second"]
    assert (refusal.code, refusal.final, refusal.waited_ms) == ("busy", False, 120_000)


def test_at_its_wait_s_end_only_the_first_of_a_flow_may_go() -> None:
    world = World({"run.input_tokens": 100}, {"e": 3})
    world.call("first", bound=400)
    world.call("behind", queue_ms=20_000)
    world.time.advance(20_000)
    assert world.refusals["behind"].code == "busy" and world.waiting() == ["first"]


def test_a_wait_that_is_over_without_a_slot_ends_in_a_passing_refusal_too() -> None:
    world = World({}, {"e": 1})
    world.call("first")
    world.call("second", run="s")
    world.time.advance(119_999)
    assert world.waiting() == ["second"]
    world.time.advance(1)
    refusal = world.refusals["second"]
    assert (refusal.code, refusal.final, refusal.shortfall) == ("busy", False, None) and world.turns.busy("e") == 1


def test_who_waits_for_room_and_a_slot_both_sets_nothing_aside_before_a_slot_was_free() -> None:
    world = World({"campaign.output_tokens": 150}, {"a": 1, "b": 1})
    world.call("busy", engine="a")
    world.call("waits", run="s", engine="a", over="refuse")
    world.call("goes", run="t", engine="b", asked=50)
    world.time.tick()
    assert world.order == ["busy", "goes"] and not holders(world)


def test_a_deadline_ends_a_wait_as_final() -> None:
    world = World({}, {"e": 1})
    world.call("first")
    world.call("second", deadline_ms=world.time.now_ms + 5_000)
    world.time.advance(5_000)
    assert (world.refusals["second"].code, world.refusals["second"].final) == ("window_over", True)
    world.call("late", deadline_ms=world.time.now_ms)
    assert world.refusals["late"].final


def test_a_deadline_that_begins_with_another_call_of_the_run_ends_waits_that_had_begun_before() -> None:
    world = World({}, {"a": 1, "b": 1})
    world.walls_ms = {"r": 30_000}
    world.call("of-another-run", run="s", engine="a")
    world.call("waits", engine="a")
    world.time.advance(12_000)
    world.call("first-sent", engine="b")
    world.time.tick()
    world.settle("first-sent")
    world.time.advance(29_999)
    assert world.waiting() == ["waits"]
    world.time.advance(1)
    refusal = world.refusals["waits"]
    assert (refusal.code, refusal.final, refusal.waited_ms) == ("run_budget_reached", True, 42_000)
    world.call("late", engine="b")
    assert world.refusals["late"].final and world.waiting() == []


def test_a_window_that_opens_only_after_the_run_s_deadline_is_not_waited_for() -> None:
    world = World({"campaign.day.requests": 1}, {"e": 2})
    world.time.advance(DAY_MS - world.time.now_ms % DAY_MS - 60_000)
    world.call("spends-the-day", run="s")
    world.call("waits-for-midnight", queue_ms=120_000)
    assert world.waiting() == ["waits-for-midnight"]
    world.call("ends-before", run="t", deadline_ms=world.time.now_ms + 59_000)
    world.time.tick()
    assert world.refusals["ends-before"].code == "run_budget_reached"
    world.time.advance(60_000)
    assert world.order == ["spends-the-day", "waits-for-midnight"]


def test_tool_calls_are_held_by_nobody_and_a_spent_limit_is_told_to_those_who_wait() -> None:
    world = World({"run.tool_calls": 1}, {"e": 2})
    for name in ("one", "two", "three"):
        world.call(name)
    assert world.order == ["one", "two"] and not holders(world)
    world.settle("one", tools=3)
    assert world.refusals["three"].final and world.waiting() == []
    world.call("four")
    shortfall = world.refusals["four"].shortfall
    assert shortfall is not None
    assert (shortfall.name, shortfall.ceiling, shortfall.settled, shortfall.asked) == ("run.tool_calls", 1, 3, 1)


def test_tool_calls_of_a_day_are_waited_for_until_midnight_and_bar_nobody_meanwhile() -> None:
    world = World({"campaign.day.tool_calls": 2, "campaign.output_tokens": 1_000}, {"e": 3})
    world.call("first")
    world.settle("first", tools=2)
    world.call("waits", run="s")
    assert world.waiting() == ["waits"] and not holders(world)
    world.time.advance(99_999)
    assert world.waiting() == ["waits"]
    world.time.advance(1)
    assert world.order == ["first", "waits"]


def test_two_hundred_small_calls_that_keep_coming_do_not_keep_a_large_one_from_going() -> None:
    """It is admitted before any that came after it and would have taken its room."""
    world = World({"campaign.output_tokens": 1_000_000, "campaign.concurrent": 50, "gateway.total_tokens": 2_200}, {"e": 50})
    for number in range(20):
        world.call(f"before-{number}", run=f"r{number % 10}", asked=90)
    world.call("large", run="big", asked=1_500, over="refuse")
    for number in range(200):
        world.call(f"after-{number}", run=f"r{number % 10}", asked=90, over="refuse")
        if number % 5 == 0:
            world.settle(next(iter(world.running)), 0)
        if "large" in world.running:
            break
    assert "large" in world.running, "it goes when the calls before it have ended"
    before = world.order[: world.order.index("large")]
    assert len(before) == 20 and all(name.startswith("before") for name in before)
    all_promises(world)


def test_nine_seconds_before_midnight_a_call_waits_for_the_new_day() -> None:
    world = World({"campaign.day.output_tokens": 100}, {"e": 1})
    world.call("first")
    world.settle("first", 95)
    world.time.advance(DAY_MS - world.time.now_ms % DAY_MS - 9_000)
    world.call("second")
    assert world.waiting() == ["second"]
    world.time.advance(9_000)
    assert world.output("second") == 100
    assert world.running["second"].accounts[0].window == f"day {world.time.now_ms // DAY_MS}"
    all_promises(world)


def test_a_call_that_was_admitted_before_midnight_settles_on_its_own_day() -> None:
    world = World({"campaign.day.output_tokens": 100}, {"e": 2})
    world.call("first")
    yesterday = world.running["first"].accounts[0]
    world.call("second", run="s")
    world.time.advance(99_999)
    assert world.waiting() == ["second"] and world.turns.queue.views()[0].sets_aside == ("campaign.day.output_tokens",)
    world.time.advance(1)
    assert world.output("second") == 100 and not holders(world)
    world.settle("first", 70)
    assert world.balances.of(yesterday).settled == 70
    assert world.balances.of(world.running["second"].accounts[0]).settled == 0


def test_far_from_midnight_a_spent_day_is_final_and_says_when_it_renews() -> None:
    world = World({"campaign.day.requests": 1}, {"e": 1})
    world.time.advance(100_000)
    world.call("first")
    world.call("second")
    shortfall = world.refusals["second"].shortfall
    assert world.refusals["second"].final and shortfall is not None
    assert shortfall.resets_at_ms == world.time.now_ms + DAY_MS


def test_a_halted_campaign_s_calls_wait_and_go_on_resume() -> None:
    world = World({}, {"e": 1})
    world.halt()
    world.call("one")
    world.time.advance(60_000)
    assert world.waiting() == ["one"] and world.turns.queue.views()[0].halted
    world.resume()
    assert world.order == ["one"]


def test_a_halt_that_lasts_is_a_passing_refusal_of_its_own() -> None:
    world = World({}, {"e": 1})
    world.halt()
    world.call("one")
    world.time.advance(120_000)
    assert (world.refusals["one"].code, world.refusals["one"].final) == ("campaign_halted", False)


def test_a_full_queue_is_overloaded() -> None:
    world = World({}, {"e": 1}, queue_length=2)
    for name in ("runs", "waits", "waits too", "too many"):
        world.call(name)
    assert world.refusals["too many"].code == "overloaded" and not world.refusals["too many"].final
    assert world.waiting() == ["waits", "waits too"]


def test_an_engine_that_is_out_bars_nobody() -> None:
    world = World({"campaign.output_tokens": 100}, {"a": 2, "b": 2})
    world.call("x", run="s", engine="b", asked=60)
    world.call("holder", run="t", engine="a", asked=100)
    world.call("small", run="u", engine="b", asked=30)
    world.time.tick()
    assert world.waiting() == ["holder", "small"]
    world.turns.set_slots("a", 0)
    world.time.tick()
    assert world.order == ["x", "small"]


def test_a_failed_commit_gives_slot_and_room_to_the_next() -> None:
    world = World({"campaign.concurrent": 1}, {"e": 1}, commits=False)
    world.call("one")
    world.call("two", run="s")
    world.fail_commit("one")
    assert world.order == ["two"] and world.turns.busy("e") == 1
