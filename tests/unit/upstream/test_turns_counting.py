"""Whose prompt is counted, when, and what is never decided on a bound."""

from __future__ import annotations

from tests.unit.upstream.world import World


def test_a_call_that_is_counted_stands_still_and_others_go_on() -> None:
    world = World({"run.input_tokens": 100}, {"e": 5})
    world.call("counts", bound=400)
    world.call("behind", prompt=10)
    world.call("other lane", lane="g", prompt=10)
    world.time.tick()
    assert world.order == ["other lane"]
    world.counted("counts")
    assert world.order == ["other lane", "counts", "behind"]
    assert world.running["counts"].admission.prompt_exact and world.turns.counts.counted == 1


def test_one_call_of_a_run_is_counted_at_a_time() -> None:
    world = World({"run.input_tokens": 100}, {"e": 5})
    world.call("one", bound=400)
    world.call("two", lane="g", bound=400)
    world.call("other run", run="s", bound=400)
    world.time.tick()
    assert list(world.counts) == ["one", "other run"]
    world.counted("one")
    assert list(world.counts) == ["other run", "two"]


def test_a_call_is_counted_though_no_slot_is_free_yet() -> None:
    world = World({"run.input_tokens": 100}, {"e": 1})
    world.call("runs")
    for name, lane in (("one", "f"), ("two", "g")):
        world.call(name, lane=lane, bound=400)
    world.time.tick()
    assert list(world.counts) == ["one"]
    world.counted("one")
    assert list(world.counts) == ["two"] and world.waiting() == ["one", "two"]


def test_who_becomes_the_first_of_its_flow_is_looked_at_though_no_slot_is_free() -> None:
    world = World({"run.input_tokens": 100}, {"e": 1})
    world.call("runs")
    first = world.call("first")
    world.call("second", bound=400)
    world.time.tick()
    assert not world.counts
    world.leave(first)
    assert list(world.counts) == ["second"]


def test_no_row_but_a_plain_send_is_decided_on_a_bound() -> None:
    world = World({"run.input_tokens": 30_000}, {"e": 1})
    world.call("one", prompt=9_000, bound=36_000)
    assert world.waiting() == ["one"]
    world.counted("one")
    assert world.order == ["one"]


def test_a_spent_limit_is_told_before_anything_is_counted_or_found_too_long() -> None:
    world = World({"run.requests": 1}, {"e": 1})
    world.call("first")
    world.call("counted", bound=400)
    world.call("too long", prompt=500, prompt_cap=100)
    assert world.counts == {}
    assert {world.refusals[name].code for name in ("counted", "too long")} == {"run_budget_reached"}


def test_a_prompt_above_its_cap_is_told_by_the_exact_count_only() -> None:
    world = World({"run.input_tokens": 1_000}, {"e": 1})
    world.call("known", prompt=500, prompt_cap=100)
    world.call("bound", prompt=50, bound=1_500, prompt_cap=100)
    world.call("counted", run="s", prompt=400, bound=1_500, prompt_cap=100)
    assert world.refusals["known"].code == "prompt_above_cap" and world.waiting() == ["bound", "counted"]
    world.counted("bound")
    world.counted("counted")
    assert world.order == ["bound"] and world.refusals["counted"].code == "prompt_above_cap"


def test_a_wait_that_ends_while_counting_is_decided_when_the_count_is_there() -> None:
    world = World({"run.input_tokens": 100}, {"e": 1})
    world.call("one", bound=400)
    world.time.advance(121_000)
    assert world.waiting() == ["one"]
    world.counted("one")
    assert world.order == ["one"]


def test_who_leaves_while_it_is_counted_leaves_the_counter_to_the_next() -> None:
    world = World({"run.input_tokens": 100}, {"e": 5})
    one = world.call("one", bound=400)
    world.call("two", lane="g", bound=400)
    world.time.tick()
    world.leave(one)
    assert list(world.counts) == ["one", "two"]
    world.turns.counted(one, 10)
    assert world.outcomes["one"] == ["left"]
