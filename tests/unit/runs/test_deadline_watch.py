from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.accounting.usage import Outcome
from gateway.ledger.state import LedgerState
from gateway.runs.deadline_watch import LOOK_EVERY_S, DeadlineWatch
from gateway.runs.keys import Identity
from tests.unit.runs.paper import POLICY, World

WALL = POLICY.replace("[run]\n", '[run]\nwall_seconds = 60\nwall_from = "opening"\n')
LANE = POLICY.replace("[campaign]\n", "[run.background]\nwall_seconds = 60\n[campaign]\n").replace("[run]\n", '[run]\nwall_from = "opening"\n')
SPAN = POLICY.replace("[campaign]\n", "[campaign]\nspan_seconds = 60\n")


class Watched(World):
    def __init__(self, state: LedgerState | None = None) -> None:
        super().__init__(state)
        self.rechecked: list[tuple[str, str]] = []
        self.watch = DeadlineWatch(self.runs, self.book.now_ms, lambda campaign, run: self.rechecked.append((campaign, run)))

    async def key(self, text: str, run: str = "r1", lane: str = "foreground") -> Identity:
        if not self.runs.campaigns():
            await self.open(text=text)
        opened = await self.runs.open_run("pilot", run)
        found = self.runs.identify(opened.keys[lane] or "")
        assert found is not None
        return found

    def move_to(self, at_ms: int) -> None:
        self.book.later_ms += at_ms - self.book.now_ms()


async def test_a_call_is_cut_at_its_runs_deadline_and_not_a_millisecond_before() -> None:
    world = Watched()
    key = await world.key(WALL)
    call = world.in_flight.enter("c1", "pilot", "r1", key.key_id)
    wall = world.runs.wall(key)
    assert wall is not None
    assert wall.at_ms == key.run.opened_at_ms + 60_000
    world.move_to(wall.at_ms - 1)
    assert (world.watch.look(), call.cut) == (0, None)
    world.move_to(wall.at_ms)
    assert (world.watch.look(), call.cut) == (1, Outcome.DEADLINE_CUT)
    assert call.cut_by is not None
    assert (call.cut_by.name, call.cut_by.ceiling, call.cut_by.settled) == ("run.wall_seconds", 60, 60)
    assert world.rechecked == [("pilot", "r1")]


async def test_a_cut_comes_once() -> None:
    world = Watched()
    key = await world.key(WALL)
    told: list[Outcome] = []
    world.in_flight.enter("c1", "pilot", "r1", key.key_id).on_cut(told.append)
    world.book.later_ms += 60_001
    assert [world.watch.look(), world.watch.look()] == [1, 0]
    assert told == [Outcome.DEADLINE_CUT]


async def test_a_lanes_deadline_cuts_that_lane_alone() -> None:
    world = Watched()
    background = await world.key(LANE, lane="background")
    foreground = next(key for key in world.runs.keys("pilot", "r1") if key.lane == "foreground")
    calls = [world.in_flight.enter(f"c-{key.lane}", "pilot", "r1", key.key_id) for key in (foreground, background)]
    world.book.later_ms += 3_600_000
    assert world.watch.look() == 1
    assert [call.cut for call in calls] == [None, Outcome.DEADLINE_CUT]
    assert [wall.limit_name for wall in world.runs.overdue("pilot", "r1")] == ["run.background.wall_seconds"]


async def test_a_span_cuts_nothing_but_asks_who_waits() -> None:
    world = Watched()
    key = await world.key(SPAN)
    call = world.in_flight.enter("c1", "pilot", "r1", key.key_id)
    world.book.later_ms += 60_001
    assert (world.watch.look(), call.cut) == (0, None)
    assert world.rechecked == [("pilot", "r1")]
    deadline = world.runs.deadline(key)
    assert deadline is not None
    assert deadline.code == "window_over"
    assert world.runs.over(key.campaign)
    assert world.runs.overdue("pilot", "r1") == ()


async def test_a_wall_still_cuts_after_the_span() -> None:
    world = Watched()
    await world.open(text=SPAN.replace("[run]\n", '[run]\nwall_seconds = 50\nwall_from = "opening"\n'))
    world.book.later_ms += 30_000
    key = await world.key("")
    call = world.in_flight.enter("c1", "pilot", "r1", key.key_id)
    world.book.later_ms += 31_000
    assert world.watch.look() == 0
    world.book.later_ms += 20_000
    assert (world.watch.look(), call.cut) == (1, Outcome.DEADLINE_CUT)
    assert call.cut_by is not None
    assert call.cut_by.name == "run.wall_seconds"


async def test_a_run_is_overdue_until_it_is_closed() -> None:
    world = Watched()
    key = await world.key(WALL)
    assert world.runs.overdue("pilot", "r1") == ()
    world.book.later_ms += 60_000
    assert [wall.limit_name for wall in world.runs.overdue("pilot", "r1")] == ["run.wall_seconds"]
    assert key.live
    await world.runs.close_run("pilot", "r1")
    assert world.runs.overdue("pilot", "r1") == ()


def test_a_look_comes_often_enough_for_a_cut_within_a_second() -> None:
    assert LOOK_EVERY_S <= 0.5


async def test_a_fault_in_one_look_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    world = Watched()
    key = await world.key(WALL)
    call = world.in_flight.enter("c1", "pilot", "r1", key.key_id)
    world.book.later_ms += 60_001
    looks = iter([ZeroDivisionError()])
    look = world.watch.look

    def faulty() -> int:
        for error in looks:
            raise error
        return look()

    world.watch.look = faulty  # type: ignore[method-assign]
    world.watch.start()
    with caplog.at_level(logging.CRITICAL):
        await asyncio.sleep(LOOK_EVERY_S * 3)
    await world.watch.stop()
    assert call.cut is Outcome.DEADLINE_CUT
