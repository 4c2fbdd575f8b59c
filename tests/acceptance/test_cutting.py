"""Halt, close and revoke on a gateway that serves: at once, also on a stream that runs, and what is cut says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawClient, chat_once
from tests.support.waiting import eventually

Gateways = Callable[..., GatewayProcess]

SLOW = {"output_tokens": 4000, "gap_ms": 20}
"""80 seconds, if nobody cuts it."""


def streaming(gateway: GatewayProcess, run: OpenedRun, lane: str = "foreground") -> RawClient:
    """A stream of which three events have come."""
    client = RawClient(gateway.port)
    client.chat(run.keys[lane], stream=True, max_tokens=4000)
    client.read_events(3)
    return client


def assert_cut_with_an_error_event(client: RawClient, within_s: float) -> None:
    began = time.monotonic()
    answer = client.answer()
    assert time.monotonic() - began < within_s
    assert answer.status == 200
    assert answer.complete
    error = answer.events[-2 if answer.events[-1].done else -1].json()
    assert "error" in error
    assert not any(letter.isdigit() for letter in error["error"]["message"])


def close(gateway: GatewayProcess, run: OpenedRun, what: str) -> dict[str, object]:
    """The run's receipt, whichever way it was cut."""
    if what == "run":
        closed = gateway.control.close_run(run, {"exit": 0, "turn_end": "completed"})
        assert closed["conflicts"] == ["declared completed, but its last sent call is closed_cut"]
    elif what == "campaign":
        receipt = gateway.control.post(f"/v1/campaigns/{run.campaign}/close")["receipt"]
        assert receipt["unsettled"] == []
    else:
        [key] = gateway.control.get(f"/v1/keys?campaign={run.campaign}&run={run.run}")["keys"]
        assert gateway.control.post(f"/v1/keys/{key['key_id']}/revoke")["revoked"]
        eventually(lambda: gateway.control.run(run)["in_flight"] == 0, "the call is settled")
        gateway.control.close_run(run)
    found: dict[str, object] = gateway.control.get(f"/v1/campaigns/{run.campaign}/runs/{run.run}/receipt")["receipt"]
    return found


@pytest.mark.parametrize("what", ["run", "campaign", "key"])
def test_a_stream_that_runs_is_cut_with_the_error_event_and_settled_as_closed_cut(gateways: Gateways, mock_process: MockProcess, what: str) -> None:
    mock_process.script(SLOW)
    gateway = gateways(mock_process.url)
    run = gateway.opened("c1", "r1")
    client = streaming(gateway, run)
    receipt = close(gateway, run, what)
    assert_cut_with_an_error_event(client, within_s=5)
    assert receipt["totals"]["outcomes"] == {"closed_cut": 1}  # type: ignore[index]
    assert chat_once(gateway.port, run.key).status == 404
    assert len(mock_process.calls()) == 1


def test_a_drain_lets_a_stream_end_by_itself_while_new_calls_are_refused(gateways: Gateways, mock_process: MockProcess) -> None:
    mock_process.script({"output_tokens": 100, "gap_ms": 20})
    gateway = gateways(mock_process.url)
    run = gateway.opened("c1", "r1")
    client = streaming(gateway, run)
    closed: list[dict[str, object]] = []
    closing = threading.Thread(target=lambda: closed.append(gateway.control.close_run(run, drain_seconds=60)))
    closing.start()
    eventually(lambda: gateway.control.run(run)["state"] == "closing", "the run is closing")
    assert chat_once(gateway.port, run.key).status == 404
    assert client.answer().events[-1].done
    closing.join(20)
    assert closed[0]["receipt"]["totals"]["outcomes"] == {"completed": 1}  # type: ignore[index]


def test_a_halt_cuts_nothing_and_calls_wait_until_the_resume(gateways: Gateways, mock_process: MockProcess) -> None:
    mock_process.script({"output_tokens": 50, "gap_ms": 10})
    gateway = gateways(mock_process.url)
    run = gateway.opened("c1", "r1")
    running = streaming(gateway, run)
    gateway.control.post("/v1/campaigns/c1/halt", {"reason": "lunch"})
    waiting = RawClient(gateway.port)
    waiting.chat(run.key, stream=True, max_tokens=5)
    assert running.answer().events[-1].done
    eventually(lambda: gateway.control.get("/v1/status")["waiting"]["count"] == 1, "the call waits")
    assert len(mock_process.calls()) == 1
    gateway.control.post("/v1/campaigns/c1/resume")
    assert waiting.answer().events[-1].done


def test_closing_a_run_refuses_its_waiting_calls_at_once(gateways: Gateways, mock_process: MockProcess) -> None:
    mock_process.script(SLOW)
    gateway = gateways(mock_process.url, slots=1)
    holder, run = gateway.opened("c1", "r1"), gateway.opened("c1", "r2")
    holding = streaming(gateway, holder)
    waiting = RawClient(gateway.port)
    waiting.chat(run.key, max_tokens=5)
    eventually(lambda: gateway.control.get("/v1/status")["waiting"]["count"] == 1, "the call waits")
    assert gateway.control.close_run(run)["receipt"]["totals"]["calls"] == 0
    assert waiting.answer(timeout_s=5).status == 404
    holding.close()
