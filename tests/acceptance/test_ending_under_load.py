"""Many calls run when a run is closed or the process is told to stop: each is on record once, as its client and the engine know it."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from tests.conftest import GatewayMaker
from tests.support import record
from tests.support.gateway_process import GatewayProcess
from tests.support.load import Load, Seen
from tests.support.mock_process import MockProcess
from tests.support.waiting import eventually

SCRIPT = {"prefill_ms": 10, "gap_ms": 10}
LIMITS = {"run": {"requests": 100_000, "output_tokens": 10_000_000}}


def agree(gateway: GatewayProcess, engine: MockProcess, seen: list[Seen]) -> dict[str, dict[str, Any]]:
    """The rows by call."""
    rows = {row["call_id"]: row for row in record.calls(gateway)}
    saw = {call["request_id"] for call in engine.calls()}
    assert {call for call, row in rows.items() if row["status"] == "settled"} == saw, "settled is what the engine saw, and nothing else"
    assert {row["status"] for row in rows.values()} <= {"settled", "voided"}
    for one in seen:
        if one.status == 200 and one.terminal and one.usage is not None:
            row = rows[one.call_id]
            assert record.usage(row) == (one.usage["prompt_tokens"], one.usage["completion_tokens"])
    assert record.reserved(gateway) == 0
    assert record.fits(gateway)
    return rows


@pytest.mark.parametrize("after_s", [0.05, 0.3, 0.7])
def test_a_run_that_is_closed_under_load_has_a_receipt_with_all_its_calls(gateways: GatewayMaker, mock_process: MockProcess, after_s: float) -> None:
    mock_process.script(SCRIPT)
    gateway = gateways(mock_process.url, slots=5, policy=LIMITS)
    run = gateway.opened()
    load = Load(gateway.port, run.key, clients=12, body={"max_tokens": 12}).start()
    eventually(mock_process.calls, "calls run")
    time.sleep(after_s)
    receipt = gateway.control.close_run(run)["receipt"]
    seen = load.join()
    rows = agree(gateway, mock_process, seen)
    settled = [row for row in rows.values() if row["status"] == "settled"]
    assert {row["outcome"] for row in settled} <= {"length", "closed_cut"}
    assert receipt["totals"]["calls"] == len(settled)
    assert receipt["totals"]["usage"]["output_tokens"]["sum"] == sum(row["output_tokens"] or 0 for row in settled)
    assert record.entries(gateway, "receipt") == 1, "nothing came after it"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("seconds", [0, 1])
def test_a_process_that_is_told_to_stop_under_load_loses_nothing(
    gateways: GatewayMaker, mock_process: MockProcess, number: signal.Signals, seconds: int
) -> None:
    mock_process.script({"prefill_ms": 10, "gap_ms": 60})
    gateway = gateways(mock_process.url, slots=5, policy=LIMITS, settings={"bounds": {"shutdown_seconds": seconds}})
    load = Load(gateway.port, gateway.opened().key, clients=12, body={"max_tokens": 20}).start()
    eventually(lambda: len(mock_process.calls()) >= 5, "calls run")
    time.sleep(0.2)
    gateway.process.signal(number)
    assert gateway.process.wait(timeout_s=15) == 0
    seen = load.join()
    gateway.start()
    rows = agree(gateway, mock_process, seen)
    outcomes = {row["outcome"] for row in rows.values() if row["status"] == "settled"}
    assert outcomes <= {"length", "shutdown_cut"} and (seconds or "shutdown_cut" in outcomes)
    assert record.entries(gateway, "expire") == record.entries(gateway, "receipt") == 0
    assert any(one.status == 429 for one in seen), "those that waited were told"
