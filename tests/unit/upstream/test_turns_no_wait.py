"""A wait of no time is over at once: it is not the next moment of something else that ends it."""

from __future__ import annotations

from tests.unit.upstream.world import World


def test_a_call_that_may_not_wait_hears_at_once_that_all_places_are_taken() -> None:
    world = World({}, {"e": 1})
    world.call("running")
    world.call("hurried", run="s", queue_ms=0)
    world.time.advance(1)
    assert world.refusals["hurried"].code == "busy" and world.waiting() == []


def test_a_call_that_may_not_wait_hears_at_once_of_a_halt() -> None:
    world = World({}, {"e": 1})
    world.halt()
    world.call("hurried", queue_ms=0)
    world.time.advance(1)
    assert world.refusals["hurried"].code == "campaign_halted" and world.waiting() == []


def test_a_call_that_may_not_wait_goes_at_once_with_what_is_free() -> None:
    world = World({"campaign.output_tokens": 130}, {"e": 9})
    world.call("running", asked=100)
    world.call("hurried", run="s", asked=100, queue_ms=0)
    world.time.advance(1)
    assert world.order == ["running", "hurried"] and world.output("hurried") == 30


def test_a_call_that_may_not_wait_is_sent_where_nothing_is_in_its_way() -> None:
    world = World({}, {"e": 1})
    world.call("hurried", queue_ms=0)
    world.time.advance(1)
    assert world.order == ["hurried"] and world.refusals == {}
