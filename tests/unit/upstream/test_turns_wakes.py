"""15: every release, arrival and end of a wait is followed by a pass. Whoever forgets one wake-up leaves others standing, and the promises see it."""

from __future__ import annotations

import random

import pytest

from gateway.upstream.call import Refusal
from gateway.upstream.turns import Turns
from gateway.upstream.waiter import Cause
from tests.unit.upstream.promises import all_promises, whoever_stays_has_a_reason
from tests.unit.upstream.test_turns_worlds import random_world
from tests.unit.upstream.world import World


def forgetting(cause: Cause | None) -> type[Turns]:
    class Forgetful(Turns):
        def wake(self, because: Cause = Cause.RELEASED) -> None:
            if because is not cause:
                super().wake(because)

    return Forgetful


def first_broken(cause: Cause | None, worlds: int) -> int | None:
    for seed in range(worlds):
        try:
            random_world(random.Random(seed), forgetting(cause))
        except AssertionError:
            return seed
    return None


def after_a_halt(kind: type[Turns]) -> World:
    """The halted campaign's call held room aside on the gateway's account."""
    world = World({"gateway.output_tokens": 100}, {"e": 9}, kind=kind)
    world.call("running", run="r1", asked=60)
    world.call("holder", run="r2", asked=100)
    world.call("other", run="r3", asked=30, campaign="d")
    world.time.tick()
    assert world.waiting() == ["holder", "other"]
    world.halt("c")
    return world


def after_a_close(kind: type[Turns]) -> World:
    world = World({"campaign.output_tokens": 100}, {"e": 9}, kind=kind)
    world.call("running", run="r1", asked=60)
    world.call("holder", run="r2", asked=100)
    world.call("other", run="r3", asked=30)
    world.time.tick()
    assert world.waiting() == ["holder", "other"]
    world.close("r2")
    return world


def after_a_refused_count(kind: type[Turns]) -> World:
    """The next of its flow becomes the first."""
    world = World({"run.input_tokens": 100}, {"e": 9}, kind=kind)
    counting = world.call("counting", bound=200)
    world.call("next", prompt=50)
    world.time.tick()
    assert counting.counting and world.waiting() == ["counting", "next"]
    world.turns.refuse(counting, Refusal(code="engine_unavailable", final=False))
    world.time.tick()
    return world


def after_room_is_given_up(kind: type[Turns]) -> World:
    """Less is left of the day than the younger holder needs: only midnight can help it, and the older one was looked at before."""
    world = World({"run.output_tokens": 100, "campaign.day.output_tokens": 200}, {"e": 9}, kind=kind)
    world.call("x1", run="r1", asked=60)
    world.call("x2", run="r2", asked=60)
    world.call("older", run="r1", asked=50, over="refuse")
    world.time.tick()
    world.call("younger", run="r3", asked=100, multiple=1, over="refuse")
    world.time.tick()
    world.settle("x1", 45)
    assert world.waiting() == ["older", "younger"]
    world.settle("x2", None)
    return world


def after_a_wait_s_end(kind: type[Turns]) -> World:
    """What was set aside for it is free."""
    world = World({"campaign.output_tokens": 100}, {"e": 9}, kind=kind)
    world.call("running", run="r1", asked=60)
    world.call("holder", run="r2", asked=100, queue_ms=5_000, over="refuse")
    world.call("other", run="r3", asked=30)
    world.time.tick()
    assert world.waiting() == ["holder", "other"]
    world.time.advance(5_000)
    assert world.refusals["holder"].code == "busy"
    return world


SCENES = {
    Cause.ENDED: after_a_wait_s_end,
    Cause.HALTED: after_a_halt,
    Cause.CLOSED: after_a_close,
    Cause.REFUSED: after_a_refused_count,
    Cause.DROPPED: after_room_is_given_up,
}


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause not in SCENES])
def test_whoever_forgets_one_wake_up_breaks_a_promise_in_some_world(cause: Cause) -> None:
    assert first_broken(cause, 400) is not None


@pytest.mark.parametrize("cause", SCENES)
def test_whoever_forgets_one_wake_up_breaks_a_promise_in_a_world_made_for_it(cause: Cause) -> None:
    all_promises(SCENES[cause](Turns))
    with pytest.raises(AssertionError, match="should have"):
        whoever_stays_has_a_reason(SCENES[cause](forgetting(cause)))
