"""Whether a run may open, over the control socket and on the real ledger: its task's attempts, its room, its campaign's span; and what is shown of time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.client.control import ControlError
from gateway.ledger.clock import LedgerClock, boot_ms, system_ms
from gateway.ledger.ledger import Ledger
from gateway.policy.days import TZDATA_VERSION
from tests.integration.control_plane import POLICY, ControlPlane

POLICIES = {
    "attempts": POLICY.replace("[run]\n", "[run]\nattempts_per_task = 1\n"),
    "refuse": POLICY.replace("runs = 7", "runs = 7\nrequests = 11"),
    "warn": POLICY.replace("runs = 7", "runs = 7\nrequests = 11").replace("[run]\n", '[run]\nrequire_room = "warn"\n'),
    "times": POLICY.replace("[run]\n", '[run]\nwall_seconds = 60\nwall_from = "opening"\n').replace("runs = 7", "runs = 7\nspan_seconds = 100"),
    "first": POLICY.replace("[run]\n", "[run]\nwall_seconds = 60\n"),
}


class Later:
    """The real clocks, and as much later as the test says."""

    def __init__(self) -> None:
        self.ms = 0

    def clock(self) -> LedgerClock:
        return LedgerClock(lambda: system_ms() + self.ms, lambda: boot_ms() + self.ms)


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
async def plane(tmp_path: Path, later: Later, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ControlPlane]:
    plain = Ledger.open
    monkeypatch.setattr(Ledger, "open", lambda path: plain(path, clock=later.clock()))
    plane = ControlPlane(tmp_path)
    plane.policies.mkdir()
    for name, text in POLICIES.items():
        (plane.policies / f"{name}.toml").write_text(text)
    await plane.start()
    yield plane
    await plane.stop()


async def open_campaign(plane: ControlPlane, policy: str) -> None:
    await plane.ask(lambda client: client.open_campaign("c", policy))


async def open_run(plane: ControlPlane, run: str, task: str = "") -> dict[str, object]:
    return await plane.ask(lambda client: client.open_run("c", run=run, task=task))


async def declined(plane: ControlPlane, run: str, task: str = "") -> ControlError:
    with pytest.raises(ControlError) as caught:
        await open_run(plane, run, task)
    return caught.value


async def restarted(plane: ControlPlane) -> None:
    await plane.stop()
    await plane.start()


def kinds(plane: ControlPlane, name: str) -> list[dict[str, object]]:
    with plane.services.reader() as reader:
        return reader.query("SELECT json_extract(body, '$.run') AS run FROM entries WHERE kind = 'event' AND json_extract(body, '$.name') = :name", name=name)


async def test_an_attempt_counts_whatever_became_of_its_run_also_after_a_restart(plane: ControlPlane) -> None:
    await open_campaign(plane, "attempts")
    assert (await declined(plane, "r0")).code == "invalid"
    await open_run(plane, "r1", "t1")
    await plane.ask(lambda client: client.close_run("c", "r1"))
    await restarted(plane)
    error = await declined(plane, "r2", "t1")
    assert (error.status, error.code) == (409, "run_budget_reached")
    assert "run.attempts_per_task is 1" in str(error)
    assert (await open_run(plane, "r2", "t2"))["created"]


async def test_a_run_without_room_is_declined_with_the_limits_numbers(plane: ControlPlane) -> None:
    await open_campaign(plane, "refuse")
    await open_run(plane, "r1")
    await plane.settle(await plane.call("a", "r1", campaign="c"))
    assert (await open_run(plane, "r2"))["created"]  # 10 are left, and it may use 10
    handle = await plane.call("b", "r1", campaign="c")
    error = await declined(plane, "r3")
    assert (error.status, error.code) == (409, "run_budget_reached")
    assert "campaign.requests = 11 only 9 are left" in str(error)
    await plane.settle(handle)
    assert (await declined(plane, "r3")).code == "run_budget_reached"
    shown = await plane.ask(lambda client: client.campaign("c"))
    assert shown["runs"]["open"] == 2


async def test_or_it_opens_with_a_note_and_the_warning_is_on_record(plane: ControlPlane) -> None:
    await open_campaign(plane, "warn")
    assert "note" not in await open_run(plane, "r1")
    for call_id in "ab":
        await plane.settle(await plane.call(call_id, "r1", campaign="c"))
    opened = await open_run(plane, "r2")
    assert opened["created"]
    assert "campaign.requests = 11 only 9 are left" in str(opened["note"])
    assert [row["run"] for row in kinds(plane, "no_room")] == ["r2"]


async def test_a_run_past_its_deadline_is_overdue_until_it_is_closed_and_a_campaign_past_its_span_opens_none(plane: ControlPlane, later: Later) -> None:
    await open_campaign(plane, "times")
    await open_run(plane, "r1")
    shown = await plane.ask(lambda client: client.run("c", "r1"))
    assert "overdue" not in shown
    wall, span = shown["deadlines"]
    assert (wall["name"], wall["ceiling"], wall["ends_at_ms"] - wall["started_at_ms"]) == ("run.wall_seconds", 60, 60_000)
    assert (wall["started_at_ms"], span["name"]) == (shown["opened_at_ms"], "campaign.span_seconds")
    later.ms = 60_000
    assert (await plane.ask(lambda client: client.run("c", "r1")))["overdue"] == ["run.wall_seconds"]
    await restarted(plane)
    [listed] = await plane.ask(lambda client: client.runs("c"))
    assert (listed["state"], listed["overdue"]) == ("open", ["run.wall_seconds"])
    later.ms = 100_000
    error = await declined(plane, "r2")
    assert (error.status, error.code) == (409, "window_over")
    campaign = await plane.ask(lambda client: client.campaign("c"))
    assert (campaign["state"], campaign["over"], campaign["span_ends_at_ms"]) == ("open", True, campaign["opened_at_ms"] + 100_000)
    closed = await plane.ask(lambda client: client.close_run("c", "r1", results={"turn_end": "completed"}))
    assert closed["conflicts"] == ["declared completed, but past its deadline"]
    assert "overdue" not in await plane.ask(lambda client: client.run("c", "r1"))


async def test_the_first_call_of_a_run_is_the_same_after_a_restart(plane: ControlPlane, later: Later) -> None:
    await open_campaign(plane, "first")
    await open_run(plane, "r1")
    assert (await plane.ask(lambda client: client.run("c", "r1")))["deadlines"] == []
    later.ms = 5_000
    await plane.settle(await plane.call("a", "r1", campaign="c"))
    later.ms = 20_000
    await restarted(plane)
    shown = await plane.ask(lambda client: client.run("c", "r1"))
    [wall] = shown["deadlines"]
    assert 5_000 <= wall["started_at_ms"] - shown["opened_at_ms"] < 15_000
    assert plane.runs.run("c", "r1").first_call_ms == {"foreground": wall["started_at_ms"]}


async def test_the_edition_of_the_zones_stands_in_a_campaigns_opening(plane: ControlPlane) -> None:
    await open_campaign(plane, "first")
    with plane.services.reader() as reader:
        [row] = reader.query("SELECT json_extract(body, '$.details.tzdata') AS edition FROM entries WHERE kind = 'open_campaign'")
    assert row["edition"] == TZDATA_VERSION
