"""Drivers: the Python library, `gateway exec`, and corrections, against a real gateway."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.client import AsyncDriver, ControlError, Driver, PreflightFailed
from gateway.client.control import ControlClient
from gateway.ledger.reading import LedgerReader
from tests.support.control import ControlAnswered
from tests.support.gateway_process import POLICY, GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawClient, chat_once
from tests.support.toml import merged
from tests.support.waiting import eventually

CALL_ONCE = """
import os
from openai import OpenAI
answer = OpenAI(max_retries=0).chat.completions.create(model="mock", max_tokens=5, messages=[{"role": "user", "content": "hello there"}])
print(answer.usage.completion_tokens)
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    policies = {"pilot": merged(POLICY, {"lanes": {"foreground": {}, "background": {}}, "run": {"requests": 4}, "campaign": {"requests": 40}})}
    with MockProcess() as mock, GatewayProcess(tmp_path_factory.mktemp("drivers"), mock.url, policies=policies) as process:
        process.control.open_campaign("pilot", "pilot")
        yield process


@pytest.fixture
def socket(gateway: GatewayProcess) -> str:
    return gateway.process.ready["control"].removeprefix("unix:")


Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def command(socket: str) -> Command:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "gateway", *arguments, "--socket", socket], capture_output=True, text=True, timeout=60)

    return run


def executed(socket: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gateway", "exec", "--socket", socket, *arguments], capture_output=True, text=True, timeout=60)


def test_a_run_is_closed_with_what_its_driver_declared(socket: str, gateway: GatewayProcess) -> None:
    with Driver(socket).run("pilot", task="task-1") as run:
        run.preflight({"campaign.requests": 40, "run.requests": 4})
        assert run.environment()["OPENAI_BASE_URL"] == f"{gateway.address}/v1"
        assert chat_once(gateway.port, run.environment()["OPENAI_API_KEY"], max_tokens=5).status == 200
        assert {limit["name"] for limit in run.budget()["limits"]} >= {"run.requests", "campaign.requests"}
        run.finish(exit=0, turn_end="token_limit", judge="pass", functional="true")
    assert run.closed is not None
    assert run.closed.receipt["results"] == {"exit": 0, "turn_end": "token_limit", "judge": "pass", "outcomes": {"functional": "true"}}
    assert run.closed.receipt["totals"]["usage"]["output_tokens"] == {"sum": 5, "unknown": 0}


def test_a_preflight_gives_each_difference(socket: str) -> None:
    with Driver(socket).run("pilot") as run, pytest.raises(PreflightFailed) as failed:
        run.preflight({"campaign.requests": 140, "run.requests": 5, "run.output_tokens": 1})
    assert [difference["name"] for difference in failed.value.differences] == ["campaign.requests", "run.requests", "run.output_tokens"]
    assert failed.value.words[:2] == ("campaign.requests is 40, not 140", "run.requests is 4, not 5")
    assert str(failed.value) == "; ".join(failed.value.words)


def test_a_run_whose_driver_fails_is_closed_all_the_same(socket: str, gateway: GatewayProcess) -> None:
    with pytest.raises(RuntimeError), Driver(socket).run("pilot") as run:
        raise RuntimeError("the driver fell over")
    assert gateway.control.get(f"/v1/campaigns/pilot/runs/{run.run}")["state"] == "closed"


def test_an_opening_whose_reply_was_lost_is_asked_again_and_gives_the_same_run(socket: str, gateway: GatewayProcess) -> None:
    class Lossy(ControlClient):
        lost = 0

        def open_run(self, *arguments: object, **named: object) -> dict[str, object]:  # type: ignore[override]
            answer = super().open_run(*arguments, **named)  # type: ignore[arg-type]
            if not self.lost:
                self.lost = 1
                raise ControlError("the connection broke")
            return answer

    before = len(gateway.control.get("/v1/campaigns/pilot/runs")["runs"])
    with Driver(socket, control=Lossy(socket)).run("pilot") as run:
        assert chat_once(gateway.port, run.key(), max_tokens=5).status == 200
    assert len(gateway.control.get("/v1/campaigns/pilot/runs")["runs"]) == before + 1


async def test_the_same_with_await(socket: str, gateway: GatewayProcess) -> None:
    async with await AsyncDriver(socket).run("pilot", lanes=["background"]) as run:
        await run.preflight({"run.requests": 4}, "background")
        answer = await asyncio.to_thread(chat_once, gateway.port, run.key("background"), max_tokens=5)
        assert answer.status == 200
        run.finish(exit=0)
    assert run.closed is not None
    assert run.closed.receipt["results"] == {"exit": 0}


def test_exec_runs_a_command_with_its_keys_and_ends_as_it_does(socket: str, gateway: GatewayProcess) -> None:
    done = executed(socket, "--campaign", "pilot", "--run", "exec-1", "--task", "t", "--expect", "run.requests=4", "--", sys.executable, "-c", CALL_ONCE)
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
    shown = gateway.control.get("/v1/campaigns/pilot/runs/exec-1")
    assert (shown["state"], shown["task"]) == ("closed", "t")
    receipt = gateway.control.get("/v1/campaigns/pilot/runs/exec-1/receipt")["receipt"]
    assert receipt["results"] == {"exit": 0}
    assert "1 calls, 11 in, 5 out" in done.stderr


@pytest.mark.parametrize(("script", "status"), [("import sys; sys.exit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_exec_closes_the_run_with_the_commands_exit_status(socket: str, gateway: GatewayProcess, script: str, status: int) -> None:
    run = f"exits-{status}"
    assert executed(socket, "--campaign", "pilot", "--run", run, "--", sys.executable, "-c", script).returncode == status
    assert gateway.control.get(f"/v1/campaigns/pilot/runs/{run}/receipt")["receipt"]["results"] == {"exit": status}


def test_exec_of_a_command_that_is_not_there(socket: str) -> None:
    done = executed(socket, "--campaign", "pilot", "--", "no-such-command-anywhere")
    assert done.returncode == 127
    assert "no such command" in done.stderr


def test_exec_begins_nothing_where_an_expectation_differs(socket: str, tmp_path: Path) -> None:
    mark = tmp_path / "begun"
    done = executed(socket, "--campaign", "pilot", "--expect", "campaign.requests=140", "--", "touch", str(mark))
    assert done.returncode == 1
    assert "cause:   campaign.requests is 40, not 140\n" in done.stderr
    assert not mark.exists()


def test_exec_passes_signals_on(socket: str, gateway: GatewayProcess, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = f"""
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))
pathlib.Path({str(ready)!r}).touch()
time.sleep(60)
"""
    command = [sys.executable, "-m", "gateway", "exec", "--socket", socket, "--campaign", "pilot", "--run", "signalled", "--", sys.executable, "-c", script]
    process = subprocess.Popen(command)
    while not ready.exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 42
    assert gateway.control.get("/v1/campaigns/pilot/runs/signalled")["state"] == "closed"


def test_a_corrected_call_stands_as_corrected_and_the_next_receipt_names_the_one_it_replaces(gateway: GatewayProcess, command: Command) -> None:
    run = gateway.opened("pilot", "corrected")
    answer = chat_once(gateway.port, run.key, max_tokens=5)
    first = gateway.control.close_run(run)["receipt"]
    call = answer.headers["x-request-id"]
    done = command("correct", call, "--set", "output_tokens=9", "--why", "the engine's log says so", "--evidence", "engine.log:17", "--json")
    assert done.returncode == 0, done.stderr
    changed = json.loads(done.stdout)
    assert (changed["before"]["output_tokens"], changed["after"]["output_tokens"], changed["after"]["source"]) == (5, 9, "corrected")
    second = gateway.control.get("/v1/campaigns/pilot/runs/corrected/receipt")["receipt"]
    assert second["receipt"] == 2
    assert second["replaces"]["hash"] == first["hash"]
    assert second["totals"]["charge"]["output_tokens"] == 9
    with LedgerReader(gateway.ledger) as reader:
        assert reader.verify([first, second]).fits


def test_a_correction_changes_no_charge_but_of_what_it_gives(tmp_path: Path) -> None:
    """A call that was charged more than is known of it is not made cheaper by a word on something else."""
    policy = {"charging": {"cut_streams": "reserved"}}
    with MockProcess(script={"output_tokens": 20, "gap_ms": 60}) as mock, GatewayProcess(tmp_path, mock.url, policy=policy) as gateway:
        run = gateway.opened()
        with RawClient(gateway.port) as client:
            client.chat(run.key, stream=True, max_tokens=20)
            client.read_events(5)
        with LedgerReader(gateway.ledger) as reader:
            eventually(lambda: [call["status"] for call in reader.calls()] == ["settled"], "the call is settled")
            before = reader.calls()[0]
            call = before["call_id"]
            gateway.control.post(f"/v1/calls/{call}/correct", {"reasoning_tokens": 1, "why": "seen", "evidence": "engine.log:17"})
            after = reader.calls()[0]
            assert after["reasoning_tokens"] == 1
            assert {name: value for name, value in after.items() if name.startswith("charged_")} == {
                name: value for name, value in before.items() if name.startswith("charged_")
            }
            assert after["charged_output_tokens"] == 20
            gateway.control.post(f"/v1/calls/{call}/correct", {"output_tokens": 6, "why": "seen", "evidence": "engine.log:18"})
            assert (reader.calls()[0]["charged_input_tokens"], reader.calls()[0]["charged_output_tokens"]) == (before["charged_input_tokens"], 6)


def test_two_corrections_at_once_both_stand(gateway: GatewayProcess) -> None:
    run = gateway.opened("pilot", "corrected-twice")
    call = chat_once(gateway.port, run.key, max_tokens=5).headers["x-request-id"]
    words = {"why": "seen", "evidence": "engine.log:17"}
    with ThreadPoolExecutor(2) as both:
        given = [{"input_tokens": 30}, {"output_tokens": 4}]
        list(both.map(lambda one: gateway.control.post(f"/v1/calls/{call}/correct", {**one, **words}), given))
    with LedgerReader(gateway.ledger) as reader:
        row = next(row for row in reader.calls() if row["call_id"] == call)
    assert (row["input_tokens"], row["output_tokens"], row["charged_input_tokens"], row["charged_output_tokens"]) == (30, 4, 30, 4)


def test_a_call_that_still_runs_is_not_corrected(tmp_path: Path) -> None:
    with MockProcess(script={"output_tokens": 20, "gap_ms": 60}) as mock, GatewayProcess(tmp_path, mock.url) as gateway, RawClient(gateway.port) as client:
        client.chat(gateway.opened().key, stream=True, max_tokens=20)
        call = client.read_events(2).headers["x-request-id"]
        with pytest.raises(ControlAnswered) as refused:
            gateway.control.post(f"/v1/calls/{call}/correct", {"output_tokens": 1, "why": "seen", "evidence": "engine.log:17"})
    assert (refused.value.status, refused.value.code) == (409, "conflict")
    assert "It is not settled yet." in str(refused.value)


def test_a_closed_runs_results_are_corrected_with_a_reason(gateway: GatewayProcess, command: Command) -> None:
    run = gateway.opened("pilot", "judged")
    gateway.control.close_run(run, {"judge": "pass"})
    done = command("correct", "pilot/judged", "--set", "judge=fail", "--set", "outcome.delivered=false", "--why", "the judge was asked again", "--json")
    assert done.returncode == 0, done.stderr
    receipt = json.loads(done.stdout)["receipt"]
    assert (receipt["receipt"], receipt["results"]["judge"], receipt["results"]["outcomes"]) == (2, "fail", {"delivered": "false"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["call-0", "--set", "output_tokens=9", "--why", "x"], "There is no call"),
        (["call-0", "--set", "tokens=9", "--why", "x"], "is nothing that a call used"),
        (["call-0", "--set", "output_tokens=-9", "--why", "x"], "is no whole number"),
        (["pilot/nobody", "--set", "judge=pass", "--why", "x"], "no run"),
    ],
)
def test_a_correction_that_can_not_be_is_refused_with_its_reason(command: Command, arguments: list[str], words: str) -> None:
    done = command("correct", *arguments)
    assert done.returncode in (2, 5)
    assert words in done.stderr
