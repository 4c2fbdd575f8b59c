"""Planned against done, over the control socket and on the real ledger: what did not happen is missing, by name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.cli.receipt_views import receipt_views
from gateway.cli.screen import Facts
from gateway.client.control import ControlError
from gateway.ledger.reading import LedgerReader
from tests.integration.control_plane import POLICY, ControlPlane

PLAN = [{"run": "a", "task": "t1", "repeat": 1}, {"run": "b", "task": "t1", "repeat": 2}, {"run": "c", "label": "production"}]
PIN = "sha256:" + "ab" * 32


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    plane = ControlPlane(tmp_path)
    plane.policies.mkdir()
    (plane.policies / "pilot.toml").write_text(POLICY)
    await plane.start()
    yield plane
    await plane.stop()


async def test_a_planned_run_that_does_not_happen_is_missing_by_name(plane: ControlPlane) -> None:
    opened = await plane.ask(lambda client: client.open_campaign("c", "pilot", plan=PLAN))
    assert (opened["planned"], opened["missing"]) == (3, ["a", "b", "c"])
    await plane.ask(lambda client: client.open_run("c", run="b", task="t1", repeat=2, pins={"image": PIN}))
    await plane.ask(lambda client: client.open_run("c", run="extra"))
    assert (await plane.ask(lambda client: client.campaign("c")))["missing"] == ["a", "c"]
    receipt = (await plane.ask(lambda client: client.close_campaign("c")))["receipt"]
    assert (receipt["planned_runs"], receipt["opened_runs"], receipt["missing_runs"], receipt["unplanned_runs"]) == (3, 2, 2, 1)


async def test_a_plan_stands_over_a_restart_and_the_ledger_fits(plane: ControlPlane) -> None:
    await plane.ask(lambda client: client.open_campaign("c", "pilot", plan=PLAN))
    await plane.ask(lambda client: client.open_run("c", run="a", repeat=1, pins={"image": PIN}, idempotency_key="k"))
    await plane.restart()
    assert (await plane.ask(lambda client: client.campaign("c")))["missing"] == ["b", "c"]
    again = await plane.ask(lambda client: client.open_campaign("c", "pilot", plan=PLAN))
    assert again["created"] is False
    with pytest.raises(ControlError, match="not opened again"):
        await plane.ask(lambda client: client.open_campaign("c", "pilot", plan=PLAN[:2]))
    same = await plane.ask(lambda client: client.open_run("c", run="a", repeat=1, pins={"image": PIN}, idempotency_key="k"))
    assert same["created"] is False
    with pytest.raises(ControlError, match="not opened again"):
        await plane.ask(lambda client: client.open_run("c", run="a", repeat=2, pins={"image": PIN}, idempotency_key="k"))
    await plane.ask(lambda client: client.close_campaign("c"))
    with LedgerReader(plane.ledger_path) as reader:
        assert reader.verify().fits
        opening = reader.query(
            "SELECT json_extract(body, '$.details.pins') AS pins, json_extract(body, '$.details.repeat') AS repeat FROM journal WHERE kind = 'open_run'"
        )
    assert opening == [{"pins": f'[["image","{PIN}"]]', "repeat": 1}]


async def test_what_made_a_run_what_it_was_is_shown_and_stands_in_each_of_its_receipts(plane: ControlPlane) -> None:
    await plane.ask(lambda client: client.open_campaign("c", "pilot"))
    await plane.ask(lambda client: client.open_run("c", run="a", task="t", repeat=3, pins={"task.json": PIN}))
    await plane.ask(lambda client: client.open_run("c", run="plain"))
    for _ in range(2):
        shown = {run: await plane.ask(lambda client, run=run: client.run("c", run)) for run in ("a", "plain")}
        assert (shown["a"]["repeat"], shown["a"]["pins"]) == (3, {"task.json": PIN})
        assert not {"repeat", "pins"} & shown["plain"].keys()
        await plane.restart()
    first = (await plane.ask(lambda client: client.close_run("c", "a", results={"outcomes": {"functional": "true"}})))["receipt"]
    second = (await plane.ask(lambda client: client.close_run("c", "a", results={"outcomes": {"functional": "false"}}, reason="judged anew")))["receipt"]
    for receipt in (first, second):
        assert (receipt["repeat"], receipt["pins"]) == (3, [["task.json", PIN]])
    assert second["replaces"] == {"receipt": 1, "hash": first["hash"]}
    facts = next(view for view in receipt_views("c/a", second) if isinstance(view, Facts))
    assert (facts.row["pins"], facts.row["replaces"]) == ({"task.json": PIN}, f"receipt 1, {first['hash']}")
    with LedgerReader(plane.ledger_path) as reader:
        assert reader.verify([first, second]).fits


@pytest.mark.parametrize(
    ("plan", "pins", "words"),
    [
        ([{"run": "a"}, {"run": "a"}], {}, "can't be planned"),
        ([{"run": "A b"}], {}, "can't be planned"),
        ([{"run": "a", "task": "x" * 201}], {}, ""),
        ([{"run": "a", "wall": 1}], {}, ""),
        (PLAN, {"image": "abc"}, "Pin 'image' can't be put on record"),
        (PLAN, {"": PIN}, "can't be put on record"),
    ],
)
async def test_a_plan_or_a_pin_that_can_not_stand_is_refused(plane: ControlPlane, plan: list[dict[str, object]], pins: dict[str, str], words: str) -> None:
    with pytest.raises(ControlError) as told:
        await plane.ask(lambda client: client.open_campaign("c", "pilot", plan=plan))
        await plane.ask(lambda client: client.open_run("c", pins=pins))
    assert told.value.status == 400
    assert words in told.value.problem
