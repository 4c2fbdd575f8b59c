"""Wall times and spans against a process: what runs at a deadline is cut within a second and says so, what waits or comes later is refused by name."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from gateway.ledger.reading import LedgerReader
from tests.conftest import GatewayMaker
from tests.support import record
from tests.support.control import ControlAnswered, OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.processes import ROOT
from tests.support.raw_http import RawAnswer, RawClient, chat_once
from tests.support.toml import Tables
from tests.support.waiting import eventually

WALL_S = 2
WITHIN_S = 1.0
SLACK_S = 0.5
"""What the test itself may take to see it."""
RETRY_WORDS = re.compile(r"\d|retry|again|later|overload|capacity|rate.?limit|temporar|timeout|unavailable", re.IGNORECASE)
LANES: Tables = {"foreground": {}, "background": {}}
LONG_TOOL_CALL = [{"name": "write_file", "arguments": json.dumps({"text": "word " * 50})}]
SCRIPTS: dict[str, Tables] = {
    "text": {"gap_ms": 50, "output_tokens": 400},
    "reasoning": {"gap_ms": 50, "output_tokens": 400, "reasoning_tokens": 400},
    "tool call": {"gap_ms": 850, "output_tokens": 302, "chunk_tokens": 400, "tool_calls": LONG_TOOL_CALL},
}


def walled(**more: object) -> Tables:
    return {"run": {"wall_seconds": WALL_S, **more}, "lanes": LANES}


def is_final(error: dict[str, Any], code: str = "run_budget_reached") -> bool:
    assert error["code"] == code, error
    assert not RETRY_WORDS.search(error["message"]), error
    return True


def is_refused(answer: RawAnswer, limit: str, seconds: int, code: str = "run_budget_reached") -> bool:
    assert (answer.status, answer.headers["x-should-retry"]) == (404, "false"), answer
    assert "retry-after" not in answer.headers
    assert (answer.headers["x-gateway-limit"], answer.headers["x-gateway-ceiling"]) == (limit, str(seconds))
    settled = int(answer.headers["x-gateway-settled"])
    assert (settled >= seconds, answer.headers["x-gateway-reserved"], answer.headers["x-gateway-asked"]) == (True, "0", "1")
    return is_final(answer.json()["error"], code)


def held(gateway: GatewayProcess) -> tuple[float, int, int]:
    return gateway.control.metric("gateway_in_flight_calls"), record.reserved(gateway), gateway.control.get("/v1/status")["upstreams"][0]["busy"]


def deadline_ms(gateway: GatewayProcess, run: OpenedRun) -> int:
    """As the gateway tells it, once its clock runs."""
    eventually(lambda: gateway.control.run(run)["deadlines"], "its clock runs")
    ends_at_ms: int = gateway.control.run(run)["deadlines"][0]["ends_at_ms"]
    return ends_at_ms


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("what", SCRIPTS)
def test_a_call_that_runs_at_the_deadline_is_cut_within_a_second(gateways: GatewayMaker, mock_process: MockProcess, what: str, stream: bool) -> None:
    mock_process.script(SCRIPTS[what])
    gateway = gateways(mock_process.url, policy=walled(), settings={"bounds": {"drain_seconds": 1}})
    run = gateway.opened()
    with RawClient(gateway.port) as client:
        client.chat(run.key, stream=stream, max_tokens=1000)
        ends_ms = deadline_ms(gateway, run)
        answer = client.answer(timeout_s=10)
        late_s = time.time() - ends_ms / 1000
    assert -0.05 <= late_s <= WITHIN_S + SLACK_S
    if stream:
        *sent, last, done = answer.events
        assert (answer.status, answer.complete, done.done) == (200, True, True)
        assert is_final(last.json()["error"])
        delta = next(event for event in reversed(sent) if event.json()["choices"]).json()["choices"][0]["delta"]
        assert {"text": "content", "reasoning": "reasoning_content", "tool call": "tool_calls"}[what] in delta, "it was cut amid this"
    else:
        assert is_refused(answer, "run.wall_seconds", WALL_S)
    row = record.closed_call(gateway)
    drained = "reported" if what == "tool call" else "unknown"  # its engine is done before drain_seconds are over
    assert record.ending(row) == ("deadline_cut", "counted" if stream else drained)
    eventually(lambda: held(gateway) == (0, 0, 0), "nothing is held")
    assert is_refused(chat_once(gateway.port, run.key, stream=stream), "run.wall_seconds", WALL_S)
    closed = gateway.control.close_run(run, {"exit": 0, "turn_end": "completed"})
    assert "declared completed, but past its deadline" in closed["conflicts"]
    assert "declared completed, but its last sent call is deadline_cut" in closed["conflicts"]
    assert closed["receipt"]["seen"]["stopped_by"] == "run.wall_seconds"
    assert len(mock_process.calls()) == 1
    assert record.fits(gateway)


def test_the_limit_that_cut_a_call_stands_in_its_settlement(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script(SCRIPTS["text"])
    gateway = gateways(mock_process.url, policy={"run": {"wall_seconds": 1}})
    run = gateway.opened()
    chat_once(gateway.port, run.key, stream=True, max_tokens=400)
    with LedgerReader(gateway.ledger) as reader:
        [row] = reader.query("SELECT body FROM entries WHERE kind = 'settle'")
    assert json.loads(str(row["body"]))["details"]["cut_by"] == {"name": "run.wall_seconds", "ceiling": 1, "settled": 1}


def test_a_call_that_does_not_stream_is_answered_at_once_and_settled_as_reported_once_its_engine_is_done(
    gateways: GatewayMaker, mock_process: MockProcess
) -> None:
    mock_process.script({"gap_ms": 50, "output_tokens": 60})
    gateway = gateways(mock_process.url, policy={"run": {"wall_seconds": 1}})
    run = gateway.opened()
    began = time.monotonic()
    assert is_refused(chat_once(gateway.port, run.key), "run.wall_seconds", 1)
    assert time.monotonic() - began < 1 + WITHIN_S + SLACK_S
    assert held(gateway)[0] == 1, "the engine is still at work, and holds slot and reservation"
    row = record.closed_call(gateway)
    assert (*record.ending(row), row["output_tokens"]) == ("deadline_cut", "reported", 60)
    eventually(lambda: held(gateway) == (0, 0, 0), "nothing is held")


def test_a_call_that_waits_at_the_deadline_is_refused_then_and_not_when_its_wait_would_end(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script({"gap_ms": 50, "output_tokens": 400})
    gateway = gateways(mock_process.url, policy=walled(wall_from="opening"), policies={"free": {"apis": ["openai.chat"], "models": {"mock": {}}}}, slots=1)
    holder = gateway.opened("free", policy="free")
    with RawClient(gateway.port) as running, RawClient(gateway.port) as waiting:
        running.chat(holder.key, stream=True, max_tokens=400)
        running.read_events(2)
        run = gateway.opened()
        ends_ms = deadline_ms(gateway, run)
        waiting.chat(run.key, stream=True)
        answer = waiting.answer(timeout_s=10)
        assert -0.05 <= time.time() - ends_ms / 1000 <= WITHIN_S + SLACK_S
        assert is_refused(answer, "run.wall_seconds", WALL_S)
        assert len(mock_process.calls()) == 1


def test_a_wait_ends_at_a_deadline_that_came_to_be_known_while_it_lasted(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    """The run's clock begins with its first call, and its second waits from before that is written."""
    mock_process.script({"gap_ms": 50, "output_tokens": 400})
    gateway = gateways(mock_process.url, policy={**walled(concurrent=1)})
    run = gateway.opened()
    with RawClient(gateway.port) as running, RawClient(gateway.port) as waiting:
        running.chat(run.key, stream=True, max_tokens=400)
        waiting.chat(run.key, stream=True, max_tokens=400)
        ends_ms = deadline_ms(gateway, run)
        answers = [running.answer(timeout_s=10), waiting.answer(timeout_s=10)]
        assert time.time() - ends_ms / 1000 <= WITHIN_S + 2 * SLACK_S
        assert sorted(answer.status for answer in answers) == [200, 404]
    assert len(mock_process.calls()) == 1


def test_a_wall_counts_from_the_first_call_or_from_the_opening(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    policies = {"opening": {"apis": ["openai.chat"], "models": {"mock": {}}, "run": {"wall_seconds": 1, "wall_from": "opening"}}}
    gateway = gateways(mock_process.url, policy={"run": {"wall_seconds": 1}}, policies=policies)
    first_call, opening = gateway.opened("c1"), gateway.opened("c2", policy="opening")
    assert not gateway.control.run(first_call)["deadlines"]
    time.sleep(1.1)
    assert is_refused(chat_once(gateway.port, opening.key, max_tokens=2), "run.wall_seconds", 1)
    assert chat_once(gateway.port, first_call.key, max_tokens=2).status == 200
    time.sleep(1.1)
    assert is_refused(chat_once(gateway.port, first_call.key, max_tokens=2), "run.wall_seconds", 1)
    assert len(mock_process.calls()) == 1
    closed = gateway.control.close_run(first_call, {"turn_end": "completed"})
    assert "declared completed, but past its deadline" in closed["conflicts"]


def test_a_call_that_was_never_sent_starts_no_clock(gateways: GatewayMaker) -> None:
    with MockProcess() as engine:
        port = int(engine.url.rpartition(":")[2])
        gateway = gateways(engine.url, policy={"run": {"wall_seconds": 1}})
        before = gateway.opened()
        assert chat_once(gateway.port, before.key, max_tokens=2).status == 200, "the model's overhead is known from here on"
    run = gateway.opened(run="r2")
    assert chat_once(gateway.port, run.key, max_tokens=2).status == 502
    assert record.calls(gateway)[-1]["status"] == "voided"
    assert not gateway.control.run(run)["deadlines"]
    time.sleep(1.1)
    with MockProcess(port=port):
        eventually(lambda: chat_once(gateway.port, run.key, max_tokens=2).status == 200, "the engine is back", every_s=0.2)
    first = next(row for row in record.calls(gateway) if row["run"] == "r2" and row["status"] == "settled")
    assert deadline_ms(gateway, run) == first["admitted_ms"] + 1000


def test_a_lane_that_is_over_does_not_stop_the_others(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script({"gap_ms": 50, "output_tokens": 80})
    gateway = gateways(mock_process.url, policy={"lanes": LANES, "run": {"foreground": {"wall_seconds": 1}}})
    run = gateway.opened()
    with RawClient(gateway.port) as foreground, RawClient(gateway.port) as background:
        foreground.chat(run.keys["foreground"], stream=True, max_tokens=400)
        background.chat(run.keys["background"], stream=True, max_tokens=400)
        cut, whole = foreground.answer(), background.answer()
    assert is_final(cut.events[-2].json()["error"])
    assert whole.events[-2].json().get("error") is None and len(whole.events) > 80
    assert is_refused(chat_once(gateway.port, run.keys["foreground"]), "run.foreground.wall_seconds", 1)
    assert chat_once(gateway.port, run.keys["background"], max_tokens=2).status == 200
    assert gateway.control.run(run)["overdue"] == ["run.foreground.wall_seconds"]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restart_gives_a_run_no_new_time(gateways: GatewayMaker, mock_process: MockProcess, end: str) -> None:
    gateway = gateways(mock_process.url, policy={"run": {"wall_seconds": 15}})
    run = gateway.opened()
    assert chat_once(gateway.port, run.key, max_tokens=2).status == 200
    ends_ms = deadline_ms(gateway, run)
    getattr(gateway, end)()
    gateway.start()
    assert deadline_ms(gateway, run) == ends_ms
    assert chat_once(gateway.port, run.key, max_tokens=2).status == 200
    time.sleep(max(0, ends_ms / 1000 - time.time()) + 0.01)
    assert is_refused(chat_once(gateway.port, run.key), "run.wall_seconds", 15)


def test_time_in_which_the_process_stood_still_counts(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script({"gap_ms": 50, "output_tokens": 400})
    gateway = gateways(mock_process.url, policy=walled())
    run = gateway.opened()
    with RawClient(gateway.port) as client:
        client.chat(run.key, stream=True, max_tokens=400)
        client.read_events(3)
        gateway.process.signal(signal.SIGSTOP)
        time.sleep(WALL_S + 0.5)
        gateway.process.signal(signal.SIGCONT)
        went_on = time.monotonic()
        answer = client.answer(timeout_s=10)
        assert time.monotonic() - went_on <= WITHIN_S + SLACK_S
    assert is_final(answer.events[-2].json()["error"])
    assert record.ending(record.closed_call(gateway))[0] == "deadline_cut"


def test_a_span_lets_what_runs_go_on_and_refuses_all_else(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script({"gap_ms": 50, "output_tokens": 80})
    gateway = gateways(mock_process.url, policy={"campaign": {"span_seconds": 2}}, slots=1)
    run = gateway.opened()
    ends_ms = gateway.control.get("/v1/campaigns/c1")["span_ends_at_ms"]
    with RawClient(gateway.port) as running, RawClient(gateway.port) as waiting:
        running.chat(run.key, stream=True, max_tokens=400)
        running.read_events(2)
        waiting.chat(run.key, stream=True)
        refused = waiting.answer(timeout_s=10)
        assert -0.05 <= time.time() - ends_ms / 1000 <= WITHIN_S + SLACK_S
        assert is_refused(refused, "campaign.span_seconds", 2, "window_over")
        assert is_refused(chat_once(gateway.port, run.key), "campaign.span_seconds", 2, "window_over")
        campaign = gateway.control.get("/v1/campaigns/c1")
        assert (campaign["over"], campaign["unsettled"]) == (True, [{"run": run.run, "calls": 1}])
        with pytest.raises(ControlAnswered) as declined:
            gateway.control.open_run("c1")
        assert (declined.value.status, declined.value.code) == (409, "window_over")
        assert declined.value.body["error"]["limit"]["name"] == "campaign.span_seconds"
        assert running.answer().events[-1].done
    assert record.ending(record.closed_call(gateway)) == ("completed", "reported")
    assert gateway.control.get("/v1/campaigns/c1")["unsettled"] == []
    assert "overdue" not in gateway.control.run(run)
    closed = gateway.control.close_run(run, {"turn_end": "time_limit"})
    assert closed["conflicts"] == []


def test_a_run_past_its_deadline_is_open_and_overdue_until_it_is_closed(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    gateway = gateways(mock_process.url, policy={"run": {"wall_seconds": 1}})
    run = gateway.opened("c1", "r1")
    assert chat_once(gateway.port, run.key, max_tokens=2).status == 200
    assert "overdue" not in gateway.control.run(run)
    time.sleep(1.1)
    shown = gateway.control.run(run)
    assert (shown["state"], shown["overdue"]) == ("open", ["run.wall_seconds"])
    [listed] = gateway.control.get("/v1/campaigns/c1/runs")["runs"]
    assert listed["overdue"] == ["run.wall_seconds"]
    for command in (("run", "list"), ("run", "show", "c1/r1")):
        assert "open, overdue" in told(gateway, *command)
    gateway.control.close_run(run)
    assert "overdue" not in gateway.control.run(run)
    assert "overdue" not in told(gateway, "run", "list")


def told(gateway: GatewayProcess, *command: str) -> str:
    whole = [sys.executable, "-m", "gateway", *command, "--config", str(gateway.config)]
    return subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True).stdout
