"""Days and clocks on a process whose system clock is faked: midnight, days of 23 and 25 hours, and a clock that is set back and forward."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.ledger.reading import LedgerReader
from tests.conftest import GatewayMaker
from tests.support import record
from tests.support.faked_time import FakedTime
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.processes import ROOT
from tests.support.raw_http import RawAnswer, RawClient, chat_once
from tests.support.toml import Tables
from tests.support.waiting import eventually

NOON = datetime(2026, 10, 3, 12, 0, 0, tzinfo=UTC)
MIDNIGHT = datetime(2026, 10, 3, 16, 0, 0, tzinfo=UTC)
"""In Shanghai."""
STARTS_S = 12
"""What a gateway may take to be up and a run to be open, on a machine that is busy."""


@pytest.fixture
def clock(tmp_path: Path) -> FakedTime:
    return FakedTime(tmp_path / "clock")


def daily(zone: str, queue_seconds: int = 0, **limits: int) -> Tables:
    return {"timezone": zone, "campaign": {"day": limits or {"requests": 1}}, "admission": {"queue_seconds": queue_seconds}}


def until(gateway: GatewayProcess, moment: datetime) -> None:
    """By the ledger's clock."""
    while (left_ms := round(moment.timestamp() * 1000) - gateway.control.get("/v1/ledger/clock")["now_ms"]) > 0:
        time.sleep(min(left_ms / 1000 + 0.005, 1))


def says(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def is_uncertain(answer: RawAnswer) -> bool:
    assert (answer.status, answer.json()["error"]["code"]) == (503, "clock"), answer
    return True


def accept(gateway: GatewayProcess) -> None:
    command = [sys.executable, "-m", "gateway", "ledger", "clock", "--accept", "--config", str(gateway.config)]
    subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)


def now(gateway: GatewayProcess) -> datetime:
    return datetime.fromtimestamp(gateway.control.get("/v1/ledger/clock")["now_ms"] / 1000, UTC)


@pytest.mark.parametrize(
    ("zone", "at", "resets_at"),
    [
        ("Asia/Shanghai", NOON, MIDNIGHT),
        ("Europe/Berlin", datetime(2026, 3, 28, 23, 30, tzinfo=UTC), datetime(2026, 3, 29, 22, 0, tzinfo=UTC)),  # 23 hours
        ("Europe/Berlin", datetime(2026, 10, 24, 22, 30, tzinfo=UTC), datetime(2026, 10, 25, 23, 0, tzinfo=UTC)),  # 25 hours
    ],
    ids=["24 hours", "23 hours", "25 hours"],
)
def test_a_refusal_names_the_moment_at_which_the_day_ends(
    gateways: GatewayMaker, mock_process: MockProcess, clock: FakedTime, zone: str, at: datetime, resets_at: datetime
) -> None:
    clock.set(at)
    gateway = gateways(mock_process.url, policy=daily(zone), env=clock.env)
    key = gateway.opened().key
    assert chat_once(gateway.port, key, max_tokens=2).status == 200
    refused = chat_once(gateway.port, key, max_tokens=2)
    assert (refused.status, refused.headers["x-gateway-limit"]) == (404, "campaign.day.requests")
    assert refused.headers["x-gateway-resets-at"] == says(resets_at)


def test_an_idle_process_over_midnight_sees_a_fresh_day(gateways: GatewayMaker, mock_process: MockProcess, clock: FakedTime) -> None:
    clock.set(MIDNIGHT - timedelta(seconds=STARTS_S))
    gateway = gateways(mock_process.url, policy=daily("Asia/Shanghai"), env=clock.env)
    key = gateway.opened().key
    assert chat_once(gateway.port, key, max_tokens=2).status == 200
    refused = chat_once(gateway.port, key, max_tokens=2)
    assert (refused.status, refused.headers["x-gateway-resets-at"]) == (404, says(MIDNIGHT)), now(gateway)
    until(gateway, MIDNIGHT)
    assert [chat_once(gateway.port, key, max_tokens=2).status for _ in range(2)] == [200, 404]


def test_a_day_that_is_about_to_begin_is_waited_for(gateways: GatewayMaker, mock_process: MockProcess, clock: FakedTime) -> None:
    clock.set(MIDNIGHT - timedelta(seconds=STARTS_S))
    gateway = gateways(mock_process.url, policy=daily("Asia/Shanghai", queue_seconds=60), env=clock.env)
    key = gateway.opened().key
    assert chat_once(gateway.port, key, max_tokens=2).status == 200
    assert now(gateway) < MIDNIGHT
    answer = chat_once(gateway.port, key, max_tokens=2)
    assert answer.status == 200
    assert timedelta(0) <= now(gateway) - MIDNIGHT < timedelta(seconds=3)
    assert int(answer.headers["x-gateway-waited-ms"]) > 0
    assert chat_once(gateway.port, key, max_tokens=2).status == 404


def test_a_call_over_midnight_counts_wholly_on_the_day_of_its_admission(gateways: GatewayMaker, mock_process: MockProcess, clock: FakedTime) -> None:
    mock_process.script({"gap_ms": 250, "output_tokens": 60})
    clock.set(MIDNIGHT - timedelta(seconds=STARTS_S))
    gateway = gateways(mock_process.url, policy=daily("Asia/Shanghai", requests=5, output_tokens=1000), env=clock.env)
    run = gateway.opened()
    with RawClient(gateway.port) as client:
        client.chat(run.key, stream=True, max_tokens=100)
        client.read_events(2)
        assert now(gateway) < MIDNIGHT
        assert client.answer(timeout_s=40).events[-1].done
    assert now(gateway) > MIDNIGHT
    with LedgerReader(gateway.ledger) as reader:
        rows = reader.query("SELECT account, settled, reserved FROM accounts WHERE account LIKE 'campaign|%day %'")
    found = {str(row["account"]).split("|")[4:][0]: (str(row["account"]).split("|")[5], row["settled"], row["reserved"]) for row in rows}
    assert found == {"requests": ("day 2026-10-03 Asia/Shanghai", 1, 0), "output_tokens": ("day 2026-10-03 Asia/Shanghai", 60, 0)}
    today = {limit["name"]: (limit["settled"], limit["left"]) for limit in gateway.control.get("/v1/campaigns/c1")["limits"]}
    assert today == {"campaign.day.requests": (0, 5), "campaign.day.output_tokens": (0, 1000)}
    assert record.fits(gateway)


def test_usage_by_day_is_what_the_days_account_holds_also_on_a_day_of_25_hours(gateways: GatewayMaker, mock_process: MockProcess, clock: FakedTime) -> None:
    clock.set(datetime(2026, 10, 24, 21, 30, tzinfo=UTC))
    gateway = gateways(mock_process.url, policy=daily("Europe/Berlin", requests=9, output_tokens=1000), env=clock.env)
    key = gateway.opened().key
    first, last, next_one = (datetime(2026, 10, *at, tzinfo=UTC) for at in ((24, 22, 30), (25, 22, 30), (25, 23, 30)))
    for calls, at in ((1, None), (2, first), (3, last), (1, next_one)):
        if at is not None:
            clock.set(at)
            assert is_uncertain(chat_once(gateway.port, key))
            accept(gateway)
        assert [chat_once(gateway.port, key, max_tokens=2).status for _ in range(calls)] == [200] * calls
    with LedgerReader(gateway.ledger) as reader:
        rows = reader.query("SELECT account, settled FROM accounts WHERE account LIKE 'campaign|c1|%day %'")
    held = {(str(row["account"]).split("|")[5], str(row["account"]).split("|")[4]): row["settled"] for row in rows}
    assert [held[f"day 2026-10-{day} Europe/Berlin", "requests"] for day in (24, 25, 26)] == [1, 5, 1]
    for where in (("--config", str(gateway.config)), ("--ledger", str(gateway.ledger))):
        command = [sys.executable, "-m", "gateway", "usage", "--by", "day", "--campaign", "c1", "--json", *where]
        told = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True).stdout)
        charged = {(f"day {row['day']} {told['zone']}", name): row["charge"][name] for row in told["groups"] for name in ("requests", "output_tokens")}
        assert charged == held
    assert record.fits(gateway)


@pytest.mark.parametrize("step", [timedelta(hours=-1), timedelta(hours=1)], ids=["back", "forward"])
def test_a_clock_that_is_set_stops_admission_until_somebody_accepts_it(
    gateways: GatewayMaker, mock_process: MockProcess, clock: FakedTime, step: timedelta
) -> None:
    clock.set(NOON)
    gateway = gateways(mock_process.url, env=clock.env)
    key = gateway.opened().key
    assert chat_once(gateway.port, key, max_tokens=2).status == 200
    before = now(gateway)
    clock.set(NOON + step)
    assert is_uncertain(chat_once(gateway.port, key))
    clock.set(before)
    assert is_uncertain(chat_once(gateway.port, key)), "only a person can say that it is right again"
    clock.set(NOON + step)
    accept(gateway)
    assert chat_once(gateway.port, key, max_tokens=2).status == 200
    after = now(gateway)
    assert after >= before, "never behind the last entry"
    assert (after - NOON > timedelta(minutes=59)) == (step > timedelta(0))
    assert len(mock_process.calls()) == 2
    assert record.fits(gateway)


def test_a_step_below_five_minutes_is_no_reason_to_stop(gateways: GatewayMaker, mock_process: MockProcess, clock: FakedTime) -> None:
    clock.set(NOON)
    gateway = gateways(mock_process.url, env=clock.env)
    key = gateway.opened().key
    began = time.monotonic()
    for step in (-280, 280):
        clock.set(NOON + timedelta(seconds=step + time.monotonic() - began))
        assert chat_once(gateway.port, key, max_tokens=2).status == 200


def test_a_clock_behind_the_last_entry_at_start_stops_admission(gateways: GatewayMaker, mock_process: MockProcess, clock: FakedTime) -> None:
    clock.set(NOON)
    gateway = gateways(mock_process.url, env=clock.env)
    key = gateway.opened().key
    assert chat_once(gateway.port, key, max_tokens=2).status == 200
    gateway.stop()
    clock.set(NOON - timedelta(minutes=1))
    gateway.start()
    assert is_uncertain(chat_once(gateway.port, key))
    accept(gateway)
    assert chat_once(gateway.port, key, max_tokens=2).status == 200


def test_a_clock_that_was_set_and_accepted_counts_for_deadlines(gateways: GatewayMaker, mock_process: MockProcess, clock: FakedTime) -> None:
    mock_process.script({"gap_ms": 50, "output_tokens": 2000})
    clock.set(NOON)
    gateway = gateways(mock_process.url, policy={"run": {"wall_seconds": 1800}}, env=clock.env)
    run = gateway.opened()
    with RawClient(gateway.port) as client:
        client.chat(run.key, stream=True, max_tokens=2000)
        client.read_events(2)
        clock.set(NOON + timedelta(hours=1))
        assert is_uncertain(chat_once(gateway.port, run.key))
        seen = len(client.read_for(1).events)
        assert seen > 10, "what runs goes on until it is known which clock is right"
        assert "overdue" not in gateway.control.run(run)
        accept(gateway)
        accepted = time.monotonic()
        answer = client.answer(timeout_s=10)
        assert time.monotonic() - accepted < 1.5
    assert answer.events[-2].json()["error"]["code"] == "run_budget_reached"
    assert gateway.control.run(run)["overdue"] == ["run.wall_seconds"]
    assert record.ending(record.closed_call(gateway))[0] == "deadline_cut"


def test_a_call_that_waits_is_not_admitted_while_the_clock_is_uncertain(gateways: GatewayMaker, mock_process: MockProcess, clock: FakedTime) -> None:
    mock_process.script({"gap_ms": 50, "output_tokens": 60})
    clock.set(NOON)
    gateway = gateways(mock_process.url, slots=1, env=clock.env)
    key = gateway.opened().key
    with RawClient(gateway.port) as running, RawClient(gateway.port) as waiting:
        running.chat(key, stream=True)
        running.read_events(2)
        waiting.chat(key, stream=True)
        eventually(lambda: waits(gateway) == 1, "it waits")
        clock.set(NOON + timedelta(hours=1))
        assert running.answer().events[-1].done
        assert is_uncertain(waiting.answer())
    assert len(mock_process.calls()) == 1


def waits(gateway: GatewayProcess) -> Any:
    return gateway.control.get("/v1/status")["waiting"]["count"]
