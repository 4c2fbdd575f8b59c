from __future__ import annotations

import asyncio

import pytest

from gateway.accounting.commands import Event, OpenCampaign, OpenRun
from gateway.accounting.quantity import Quantity
from gateway.policy.days import TZDATA_VERSION
from gateway.runs.declined import Declined
from gateway.runs.opening import OpenedRun
from tests.unit.runs.paper import POLICY, World, policy

ATTEMPTS = POLICY.replace("[run]\n", "[run]\nattempts_per_task = 2\n")
TIGHT = POLICY.replace("runs = 7", "runs = 7\nrequests = 25")


async def declined(world: World, **more: str) -> Declined:
    with pytest.raises(Declined) as error:
        await world.runs.open_run("pilot", **more)
    return error.value


async def test_every_opened_run_is_an_attempt_at_its_task_whatever_became_of_it() -> None:
    world = World()
    await world.open(text=ATTEMPTS)
    await world.runs.open_run("pilot", "r1", task="t1")
    await world.runs.close_run("pilot", "r1")
    await world.runs.open_run("pilot", "r2", task="t1")
    error = await declined(world, run="r3", task="t1")
    assert error.code == "run_budget_reached"
    assert error.shortfall is not None
    assert (error.shortfall.name, error.shortfall.ceiling, error.shortfall.settled, error.shortfall.asked) == ("run.attempts_per_task", 2, 2, 1)
    assert (await world.runs.open_run("pilot", "r3", task="t2")).created


async def test_many_openings_at_once_are_exactly_so_many_attempts() -> None:
    world = World()
    await world.open(text=ATTEMPTS)
    answers = await asyncio.gather(*(world.runs.open_run("pilot", task="t1") for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(answer, OpenedRun) for answer in answers) == 2


async def test_an_opening_that_is_asked_for_again_is_no_further_attempt() -> None:
    world = World()
    await world.open(text=ATTEMPTS.replace("attempts_per_task = 2", "attempts_per_task = 1"))
    first = await world.runs.open_run("pilot", task="t1", idempotency_key="k")
    again = await world.runs.open_run("pilot", task="t1", idempotency_key="k")
    assert (first.run, again.created) == (again.run, False)


async def test_a_run_without_a_task_is_no_attempt_at_anything() -> None:
    world = World()
    await world.open(text=ATTEMPTS)
    error = await declined(world)
    assert error.code == "invalid"
    assert "run.attempts_per_task" in error.cause


async def test_after_the_span_no_run_opens() -> None:
    world = World()
    await world.open("r1", text=POLICY.replace("[campaign]\n", "[campaign]\nspan_seconds = 60\n"))
    opened_at_ms = world.runs.campaign("pilot").opened_at_ms
    world.book.later_ms += opened_at_ms + 59_999 - world.book.now_ms()
    await world.runs.open_run("pilot", "r2")
    world.book.later_ms += opened_at_ms + 60_000 - world.book.now_ms()
    error = await declined(world)
    assert error.code == "window_over"
    assert error.shortfall is not None
    assert (error.shortfall.name, error.shortfall.ceiling, error.shortfall.settled) == ("campaign.span_seconds", 60, 60)


def spend(world: World, requests: int) -> None:
    from gateway.accounting.entries import PostingLine

    account = next(found.limit.account for found in world.runs.limits("pilot") if found.limit.account.quantity is Quantity.REQUESTS)
    world.book.balances.apply([PostingLine(account, 0, requests)])


async def test_a_run_that_the_campaign_cannot_carry_to_its_end_is_not_opened() -> None:
    world = World()
    await world.open("r1", text=TIGHT)
    spend(world, 15)
    assert (await world.runs.open_run("pilot", "r2")).created  # 10 are left, and it may use 10
    spend(world, 1)
    error = await declined(world, run="r3")
    assert error.code == "run_budget_reached"
    assert error.shortfall is not None
    assert (error.shortfall.name, error.shortfall.ceiling, error.shortfall.settled, error.shortfall.asked) == ("campaign.requests", 25, 16, 10)
    assert "r3" not in world.runs.campaign("pilot").runs


async def test_or_it_is_opened_with_a_warning_that_stands_on_record() -> None:
    world = World()
    await world.open(text=TIGHT.replace("[run]\n", '[run]\nrequire_room = "warn"\n'))
    assert (await world.runs.open_run("pilot", "r1")).note == ""
    spend(world, 16)
    opened = await world.runs.open_run("pilot", "r2")
    assert opened.created
    assert opened.keys["foreground"]
    assert "campaign.requests = 25 only 9 are left" in opened.note
    [event] = [command for command in world.book.posted if isinstance(command, Event)]
    assert (event.name, event.run, event.details["limit"], event.details["asked"]) == ("no_room", "r2", "campaign.requests", 10)


async def test_or_nobody_asks() -> None:
    world = World()
    await world.open(text=TIGHT.replace("[run]\n", '[run]\nrequire_room = "off"\n'))
    spend(world, 25)
    assert (await world.runs.open_run("pilot", "r1")).note == ""
    assert not [command for command in world.book.posted if isinstance(command, Event)]


async def test_the_edition_of_the_zones_is_on_record() -> None:
    world = World()
    await world.runs.open_campaign("pilot", policy())
    [opening] = [command for command in world.book.posted if isinstance(command, OpenCampaign)]
    assert opening.details["tzdata"] == TZDATA_VERSION
    assert TZDATA_VERSION[:4].isdigit()


@pytest.mark.parametrize(
    ("declared", "expected"),
    [("", set()), ("wall_seconds = 9\n", {"wall_seconds"}), ('wall_seconds = 9\nwall_from = "opening"\n', {"wall_seconds", "deadline_ms"})],
)
async def test_an_opening_holds_what_its_receipt_needs_of_the_deadline(declared: str, expected: set[str]) -> None:
    world = World()
    await world.open("r1", text=POLICY.replace("[run]\n", f"[run]\n{declared}"))
    [opening] = [command for command in world.book.posted if isinstance(command, OpenRun)]
    assert set(opening.details) == expected
    if "deadline_ms" in expected:
        assert opening.details["deadline_ms"] == opening.at_ms + 9_000
