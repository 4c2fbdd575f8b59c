"""Durable before the first byte to the engine, durable before the end to the agent: seen from outside, by strace on a live gateway."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import GatewayMaker
from tests.support import sse, strace
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.order import Step, calls_of, faults, steps_of
from tests.support.processes import HASTY
from tests.support.raw_http import RawAnswer, chat_once
from tests.support.skips import skip
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def _traceable(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        skip("no-strace", "strace is not installed")
    if subprocess.run(["strace", "-o", str(tmp_path / "tried"), "true"], capture_output=True, timeout=30).returncode:
        skip("no-strace", "strace is not allowed to trace here")


def traced(gateway: GatewayProcess, trace: Path, engine: MockProcess) -> list[Step]:
    """After the gateway has ended."""
    port = gateway.port
    assert gateway.stop() == 0
    eventually(lambda: f"{gateway.process.pid} " in trace.read_text() and "+++ exited with" in trace.read_text().splitlines()[-1], "the trace is whole")
    calls = strace.parse(trace.read_text(encoding="latin-1").splitlines())
    return steps_of(calls, ledger=str(gateway.ledger.resolve()), data_port=port, engine_port=int(engine.url.rpartition(":")[2]))


def ids(answers: list[RawAnswer]) -> list[str]:
    assert all(answer.status == 200 and answer.complete for answer in answers)
    return sorted(answer.headers["x-request-id"] for answer in answers)


def test_every_call_is_reserved_before_it_is_sent_and_settled_before_it_is_ended(gateways: GatewayMaker, mock_process: MockProcess, tmp_path: Path) -> None:
    gateway = gateways(mock_process.url, wrap=strace.wrap(tmp_path / "trace"))
    key = gateway.opened().key
    mock_process.queue({}, {}, {"die": "eof", "die_after": 3}, {"die": "error_event", "die_after": 3}, {})
    answers = [chat_once(gateway.port, key, stream=stream, max_tokens=5) for stream in (True, False, True, True, False)]
    assert [sse.error(answer.body) is not None for answer in answers if answer.events] == [False, True, True], "an error event is an end too"
    steps = traced(gateway, tmp_path / "trace", mock_process)
    assert faults(steps) == []
    assert sorted(calls_of(steps, "sent")) == sorted(calls_of(steps, "ended")) == ids(answers)
    assert sorted(calls_of(steps, "wrote reserve")) == sorted(calls_of(steps, "wrote settle")) == ids(answers)
    assert calls_of(steps, "helper"), "helper requests, told apart by their path, are not among the calls"


def test_the_order_holds_for_each_of_many_calls_at_once(gateways: GatewayMaker, mock_process: MockProcess, tmp_path: Path) -> None:
    mock_process.script({"gap_ms": 3})
    gateway = gateways(mock_process.url, slots=8, wrap=strace.wrap(tmp_path / "trace"))
    key = gateway.opened().key
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda number: chat_once(gateway.port, key, stream=number % 3 > 0, max_tokens=6), range(36)))
    steps = traced(gateway, tmp_path / "trace", mock_process)
    assert faults(steps) == []
    assert sorted(calls_of(steps, "sent")) == sorted(calls_of(steps, "ended")) == ids(answers)


@pytest.mark.parametrize(("entry", "what"), [("Reserve", "sent"), ("Settle", "ended")])
@pytest.mark.parametrize("stream", [True, False])
def test_a_gateway_that_goes_on_before_its_entry_is_written_is_found_out(
    gateways: GatewayMaker, mock_process: MockProcess, tmp_path: Path, entry: str, what: str, stream: bool
) -> None:
    mock_process.script({"prefill_ms": 1_200})
    env = {**HASTY, "GATEWAY_HASTY": entry}
    gateway = gateways(mock_process.url, env=env, wrap=strace.wrap(tmp_path / "trace"))
    answer = chat_once(gateway.port, gateway.opened().key, stream=stream, max_tokens=5)
    eventually(lambda: gateway.control.metric("gateway_in_flight_calls") == 0, "the late entry is written")
    (call,) = ids([answer])
    assert faults(traced(gateway, tmp_path / "trace", mock_process)) == [f"{call} was {what} before its ledger wrote {entry.lower()}"]
