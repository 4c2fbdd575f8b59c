"""What a call is told that it waited for: every limit that was in its way, each with its time."""

from __future__ import annotations

from tests.unit.upstream.world import World


def delays(world: World, name: str) -> list[tuple[str, int]]:
    return [(delay.shortfall.name, delay.ms) for delay in world.running[name].admission.delays]


def test_a_call_that_goes_at_once_waited_for_nothing() -> None:
    world = World({"run.output_tokens": 100}, {"e": 1})
    world.call("goes", asked=100)
    assert delays(world, "goes") == []


def test_each_limit_is_named_in_order_with_the_time_in_which_it_stood_in_the_way() -> None:
    world = World({"run.concurrent": 1, "campaign.output_tokens": 150}, {"e": 9})
    world.call("own", run="s", asked=40)
    world.call("others", run="t", asked=110)
    world.call("waits", run="s", lane="g", asked=100)
    world.time.advance(4_000)
    world.settle("own", 0)
    assert world.order == ["own", "others"], "its run has room, the campaign has not"
    world.time.advance(3_000)
    world.settle("others", 0)
    assert delays(world, "waits") == [("run.concurrent", 4_000), ("campaign.output_tokens", 3_000)]
    assert world.running["waits"].admission.waited_ms == 7_000


def test_a_limit_that_comes_to_be_in_the_way_again_is_named_once_with_both_times() -> None:
    world = World({"run.output_tokens": 100}, {"e": 9})
    world.call("own", asked=100)
    waits = world.call("waits", lane="g", asked=100)
    now_ms, first = world.time.now_ms, waits.delays["run.output_tokens"].shortfall
    waits.delay(now_ms + 10)
    waits.delay(now_ms + 25, first)
    waits.delay(now_ms + 40)
    assert [(name, delay.ms) for name, delay in waits.delays.items()] == [("run.output_tokens", 25)]


def test_a_wait_for_a_slot_is_no_wait_for_a_limit() -> None:
    world = World({"run.output_tokens": 1_000}, {"e": 1})
    world.call("first", asked=100)
    world.call("second", asked=100)
    world.time.advance(2_000)
    world.settle("first")
    assert delays(world, "second") == []
    assert world.running["second"].admission.waited_ms == 2_000
