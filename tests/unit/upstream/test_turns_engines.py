"""Several engines that can serve a call: which it goes to, how long it waits for the one that knows its prompt, and that nobody has more turns for it."""

from __future__ import annotations

import pytest

from gateway.upstream.waiter import Waiter
from tests.unit.upstream.promises import all_promises
from tests.unit.upstream.world import World

BOTH = ("a", "b")
WAIT_MS = 2_000


def where(world: World, name: str) -> str:
    return world.running[name].admission.upstream


def served(world: World, name: str, **more: str) -> str:
    """A call that comes, goes and ends."""
    world.call(name, engine=BOTH, **more)  # type: ignore[arg-type]
    engine = where(world, name)
    world.settle(name)
    return engine


def at_home_in_a(**slots: int) -> World:
    """Run r was served by a, which is full now; b has a slot."""
    world = World({}, {"a": 1, "b": 1, **slots}, affinity_wait_ms=WAIT_MS)
    assert served(world, "first") == "a"
    world.call("fills", run="s", engine="a")
    return world


def test_a_call_takes_any_engine_that_can_serve_it_and_has_a_slot() -> None:
    world = World({}, {"a": 1, "b": 1})
    for name in ("one", "two", "three"):
        world.call(name, run=name, engine=BOTH)
    assert [where(world, name) for name in ("one", "two")] == ["a", "b"]
    assert world.waiting() == ["three"]
    world.settle("two")
    assert where(world, "three") == "b"


def test_a_run_without_a_home_goes_where_most_is_free_and_of_equals_where_it_was_quiet_longest() -> None:
    world = World({}, {"a": 4, "b": 2})
    sent = []
    for number in range(6):
        world.call(f"{number}", run=f"r{number}", engine=BOTH)
        sent.append(where(world, f"{number}"))
    assert sent == ["a", "b", "a", "b", "a", "a"], "by the part that is taken, not by the number"
    idle = World({}, {"a": 1, "b": 1})
    assert [served(idle, f"{number}", run=f"r{number}") for number in range(4)] == ["a", "b", "a", "b"]


def test_a_run_goes_back_to_the_engine_that_served_it_last() -> None:
    world = World({}, {"a": 4, "b": 4})
    assert served(world, "other", run="s") == "a"
    assert [served(world, f"{number}") for number in range(5)] == ["b"] * 5
    world.call("busy", run="t", engine="b")
    assert served(world, "also when the other is emptier") == "b"


def test_each_lane_of_a_run_has_a_home_of_its_own() -> None:
    world = World({}, {"a": 1, "b": 1})
    assert served(world, "foreground", lane="f") == "a"
    assert served(world, "background", lane="g") == "b"
    assert served(world, "foreground again", lane="f") == "a"


def test_a_call_waits_for_its_home_while_another_engine_has_a_slot_but_not_longer_than_that_is_worth() -> None:
    world = at_home_in_a()
    world.call("waits", engine=BOTH)
    world.time.advance(WAIT_MS - 1)
    [view] = world.turns.queue.views()
    assert (view.call_id, view.home, view.engines) == ("waits", "a", BOTH)
    world.time.advance(1)
    assert where(world, "waits") == "b"
    assert world.running["waits"].admission.at_home is False and world.turns.counts.away == 1
    all_promises(world)


def test_its_patience_begins_when_another_engine_could_have_taken_it_not_when_it_came() -> None:
    world = at_home_in_a()
    world.call("fills too", run="t", engine="b")
    world.call("waits", engine=BOTH)
    world.time.advance(10 * WAIT_MS)
    world.settle("fills too")
    world.time.advance(WAIT_MS - 1)
    assert world.waiting() == ["waits"]
    world.settle("fills")
    assert where(world, "waits") == "a" and world.running["waits"].admission.at_home is True


def no_room_while_home_fills() -> World:
    """Run r's call waits for room that is set aside for its other lane; meanwhile its home, a, becomes full, and b gets a slot."""
    world = World({"run.concurrent": 1}, {"a": 2, "b": 1}, affinity_wait_ms=WAIT_MS)
    world.call("fills b", run="s", engine="b")
    world.call("first", engine=BOTH)
    world.call("holder", lane="g", engine="a")
    world.call("waits", engine=BOTH)
    world.time.tick()
    world.call("fills a", run="t", engine="a")
    world.time.tick()
    assert where(world, "first") == "a" and world.waiting() == ["holder", "waits"]
    all_promises(world)
    world.settle("fills b")
    return world


def test_its_patience_begins_though_there_is_no_room_for_it_yet() -> None:
    world = no_room_while_home_fills()
    all_promises(world)
    [_, view] = world.turns.queue.views()
    assert view.in_the_way is not None and view.in_the_way.name == "run.concurrent"
    assert view.home == "a"


@pytest.mark.parametrize("short_ms", [0, 1])
def test_a_call_that_gets_room_waits_for_its_home_only_as_long_as_it_has_not_done_so_meanwhile(short_ms: int) -> None:
    world = no_room_while_home_fills()
    world.call("keeps a full", run="u", engine="a")
    world.time.advance(WAIT_MS - short_ms)
    for name in ("first", "holder"):  # first goes, holder takes its place, then there is room
        world.settle(name)
        all_promises(world)
    assert [name for name, sent in world.running.items() if sent.admission.upstream == "a"] == ["fills a", "keeps a full"]
    assert world.waiting() == ["waits"] * short_ms
    world.time.advance(short_ms)
    assert where(world, "waits") == "b"


def test_a_call_that_waits_for_its_home_bars_nobody_from_the_other() -> None:
    world = at_home_in_a()
    world.call("waits", engine=BOTH)
    world.call("goes", run="u", engine=BOTH)
    world.time.tick()
    assert where(world, "goes") == "b" and world.waiting() == ["waits"]


def test_without_a_wait_for_homes_there_are_none() -> None:
    world = World({}, {"a": 2, "b": 2}, affinity_wait_ms=0)
    assert [served(world, f"{number}") for number in range(4)] == ["a", "b", "a", "b"]


def test_an_engine_that_is_out_is_nobody_s_home() -> None:
    world = at_home_in_a()
    world.set_slots("a", 0)
    world.call("goes", engine=BOTH)
    assert where(world, "goes") == "b"
    world.settle("goes")
    world.set_slots("a", 1)
    assert served(world, "stays where it is known") == "b"


def test_a_run_whose_call_failed_there_need_not_go_back() -> None:
    world = World({}, {"a": 2, "b": 2})
    assert served(world, "first") == "a"
    world.turns.queue.homes.left(("c", "r", "f", BOTH))
    world.call("keeps a busier", run="s", engine="a")
    assert served(world, "second") == "b"


def test_at_the_end_of_its_wait_any_slot_will_do() -> None:
    world = at_home_in_a()
    world.call("brief", engine=BOTH, queue_ms=WAIT_MS // 2)
    world.time.advance(WAIT_MS // 2)
    assert where(world, "brief") == "b"


def test_a_call_for_which_room_is_set_aside_does_not_wait_for_its_home() -> None:
    """Others stand back for it: it goes as soon as it can."""
    world = World({"campaign.output_tokens": 200}, {"a": 2, "b": 2}, affinity_wait_ms=WAIT_MS)
    assert served(world, "first", run="r") == "a"
    world.call("runs", run="s", engine="b", asked=60)
    world.call("holder", run="r", engine=BOTH, asked=100, over="refuse")
    world.time.tick()
    assert world.waiting() == ["holder"] and world.turns.queue.views()[0].sets_aside
    for name in ("x", "y"):
        world.call(name, run=name, engine="a", asked=0)
    world.time.tick()
    assert world.running.keys() == {"runs", "x", "y"}
    world.settle("runs", 0)
    assert where(world, "holder") == "b"


def test_while_none_of_its_engines_takes_calls_a_call_is_told_so_and_who_waits_already_goes_when_one_does() -> None:
    world = World({}, {"a": 1, "b": 1})
    for name in ("one", "two", "waits", "waits in vain"):
        world.call(name, run=name, engine=BOTH, queue_ms=50_000 if name == "waits in vain" else 120_000)
    world.set_slots("a", 0)
    world.set_slots("b", 0)
    world.call("late", run="late", engine=BOTH)
    refusal = world.refusals["late"]
    assert (refusal.code, refusal.final) == ("engine_unavailable", False)
    assert [view.out for view in world.turns.queue.views()] == [True, True]
    world.settle("one")
    world.time.advance(50_000)
    assert world.refusals["waits in vain"].code == "engine_unavailable"
    world.set_slots("b", 2)
    assert where(world, "waits") == "b"


def test_an_engine_that_its_policy_does_not_take_is_no_engine_for_a_call() -> None:
    world = World({}, {"a": 1, "b": 1})
    world.takes = lambda engine: engine != "a"
    world.call("one", engine=BOTH)
    assert where(world, "one") == "b"
    world.call("two", run="s", engine=BOTH)
    assert world.waiting() == ["two"], "the other has a slot, but may not serve it"
    world.call("three", run="t", engine="a")
    assert world.refusals["three"].code == "engine_unavailable"


@pytest.mark.parametrize(("ceilings", "slots"), [({}, 1), ({"campaign.output_tokens": 700}, 40)], ids=["slots", "campaign_tokens"])
def test_the_single_call_of_a_run_goes_after_one_call_of_a_flood_at_two_engines(ceilings: dict[str, int], slots: int) -> None:
    """12, whether slots are scarce or the campaign's tokens."""
    world = World({**ceilings}, {"a": slots, "b": slots}, affinity_wait_ms=WAIT_MS)
    for number in range(50):
        world.call(f"flood {number}", run="flood", engine=BOTH, over="refuse")
    world.time.tick()
    at_work = len(world.running)
    assert at_work < 10
    world.call("lone", run="lone", engine=BOTH, over="refuse")
    while "lone" not in world.running:
        world.settle(world.order[len(world.settled)], 0)
        world.time.tick()
        all_promises(world)
    assert len(world.order) - at_work <= 2, "at most one of the flood's, and it"
    assert len(world.waiting()) > 30


def test_whoever_may_go_to_two_engines_has_not_two_turns() -> None:
    """Runs that may use one engine each, and one that may use both: at each engine one call of each goes by turns."""
    world = World({}, {"a": 1, "b": 1}, affinity_wait_ms=0)
    for number in range(12):
        for run, engines in (("both", BOTH), ("a", ("a",)), ("b", ("b",))):
            world.call(f"{run} {number}", run=run, engine=engines)
    for _ in range(16):
        world.settle(next(iter(world.running)))
    sent = [name.split()[0] for name in world.order]
    assert abs(sent.count("a") - sent.count("b")) <= 1
    assert sent.count("both") <= sent.count("a") + 1


def test_an_engine_of_its_own_is_not_kept_from_a_run_by_its_calls_elsewhere() -> None:
    """Its turn at an engine is reckoned there, whatever else it has at others."""
    world = World({}, {"a": 1, "b": 1}, affinity_wait_ms=0)
    world.call("x", run="x", engine="a")
    world.call("both", run="r", engine="b")
    world.call("waits", run="r", engine=BOTH)
    for number in range(5):
        world.call(f"r {number}", run="r", engine="b")
        world.call(f"s {number}", run="s", engine="a")
    for _ in range(2):
        world.settle(next(name for name in world.running if where(world, name) == "a"))
    assert "waits" in world.order


def crowd(ceilings: dict[str, int], slots: int, runs: int) -> World:
    world = World(ceilings, {"a": slots, "b": slots})
    for number in range(runs):
        world.call(f"{number}", run=f"r{number}", engine=BOTH)
    world.time.tick()
    return world


@pytest.mark.parametrize(
    ("ceilings", "slots", "most"),
    [({}, 4, 302), ({"campaign.output_tokens": 1_000, "run.requests": 9}, 200, 3)],
    ids=["slots", "campaign_tokens"],
)
def test_a_pass_looks_at_no_run_that_waits_twice_and_at_none_for_which_there_is_no_room(
    ceilings: dict[str, int], slots: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What 300 runs that wait cost; bench/waiting.py says it in time."""
    world = crowd(ceilings, slots, 310)
    waiting = len(world.waiting())
    assert waiting >= 300
    decided: list[Waiter] = []
    decide = world.turns._decide

    def counted(waiter: Waiter) -> object:
        decided.append(waiter)
        return decide(waiter)

    monkeypatch.setattr(type(world.turns), "_decide", lambda _, waiter: counted(waiter))
    counts = world.turns.counts
    looks, passes = counts.looks, counts.passes
    for _ in range(10):
        world.settle(next(iter(world.running)), 0)
    passes = counts.passes - passes
    assert 10 <= passes <= 20
    assert (counts.looks - looks) / passes <= most
    assert len(decided) <= 30, "of those that stay where they are nobody is decided anew"
