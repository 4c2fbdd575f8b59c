"""What the gateway cuts itself: a closed run, a closed campaign, a revoked key, its own end. A cut says what it is."""

from __future__ import annotations

import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conftest import GatewayMaker
from tests.support import record, sse
from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.processes import HASTY
from tests.support.raw_http import RawAnswer, RawClient, chat_once
from tests.support.waiting import eventually

WITHIN_S = 0.5
LIMITS = {"run": {"requests": 1_000, "output_tokens": 1_000_000}}
SLOW = {"gap_ms": 50}
RETRY_WORDS = re.compile(r"\d|retry|again|later|overload|capacity|rate.?limit|temporar|timeout|unavailable", re.IGNORECASE)


def close_the_run(gateway: GatewayProcess, run: OpenedRun) -> Any:
    return gateway.control.close_run(run)["receipt"]


def close_the_campaign(gateway: GatewayProcess, run: OpenedRun) -> Any:
    return gateway.control.post(f"/v1/campaigns/{run.campaign}/close", {"close_seconds": 20})


def revoke_the_key(gateway: GatewayProcess, run: OpenedRun) -> Any:
    (key,) = gateway.control.get(f"/v1/keys?campaign={run.campaign}&run={run.run}")["keys"]
    return gateway.control.post(f"/v1/keys/{key['key_id']}/revoke")


CUTS = pytest.mark.parametrize("cut", [close_the_run, close_the_campaign, revoke_the_key])


def has_final_words(error: dict[str, Any], code: str = "run_closed") -> bool:
    assert error["code"] == code and error["type"] == "invalid_request_error", error
    assert not RETRY_WORDS.search(error["message"]), error
    return True


def ends_with_final_words(answer: RawAnswer, code: str = "run_closed") -> bool:
    """A data frame with the error, then the end, in a body that its framing calls whole."""
    assert answer.status == 200 and answer.complete
    *_, last, done = answer.events
    assert done.done and has_final_words(last.json()["error"], code)
    assert sse.unfinished(answer.body) == b""
    return True


def is_the_final_refusal(answer: RawAnswer, code: str = "run_closed") -> bool:
    assert (answer.status, answer.headers["x-should-retry"], answer.complete) == (404, "false", True)
    assert "retry-after" not in answer.headers
    return has_final_words(answer.json()["error"], code)


def the_call(engine: MockProcess) -> dict[str, Any]:
    eventually(engine.calls, "the engine has the call")
    return engine.calls()[0]


@CUTS
def test_a_running_stream_is_cut_with_an_error_event_and_its_engine_call_closed(gateways: GatewayMaker, mock_process: MockProcess, cut: Any) -> None:
    mock_process.script(SLOW)
    gateway = gateways(mock_process.url, policy=LIMITS)
    run = gateway.opened()
    with RawClient(gateway.port) as client, ThreadPoolExecutor(1) as pool:
        client.chat(run.key, stream=True, max_tokens=400)
        client.read_events(6)
        at = time.time_ns()
        done = pool.submit(cut, gateway, run)
        assert ends_with_final_words(client.answer(timeout_s=5))
        done.result(10)
    eventually(lambda: the_call(mock_process)["left"], "the engine is left")
    assert (the_call(mock_process)["left"]["unix_ns"] - at) / 1e9 < WITHIN_S + 0.5, "closing is itself an entry that must be written first"
    row = record.closed_call(gateway)
    assert record.ending(row) == ("closed_cut", "counted")
    assert 5 <= row["output_tokens"] < 400 and record.charge(row)[1] == row["output_tokens"]
    assert record.reserved(gateway) == 0
    assert is_the_final_refusal(chat_once(gateway.port, run.key)), "the key opens nothing any more"
    assert record.fits(gateway)


@CUTS
def test_a_call_that_does_not_stream_is_answered_at_once_and_settled_as_reported(gateways: GatewayMaker, mock_process: MockProcess, cut: Any) -> None:
    mock_process.script(SLOW)
    gateway = gateways(mock_process.url, policy=LIMITS)
    run = gateway.opened()
    with RawClient(gateway.port) as client, ThreadPoolExecutor(1) as pool:
        client.chat(run.key, max_tokens=40)
        the_call(mock_process)
        began = time.monotonic()
        done = pool.submit(cut, gateway, run)
        assert is_the_final_refusal(client.answer(timeout_s=5))
        assert time.monotonic() - began < 1.5, "the engine takes two seconds"
        assert not the_call(mock_process)["ended"]
        done.result(20)
    row = record.closed_call(gateway)
    seen = the_call(mock_process)
    assert (seen["end"], seen["left"]) == ("completed", None)
    assert record.ending(row) == ("closed_cut", "reported")
    assert record.usage(row) == (seen["prompt_tokens"], 40)
    assert record.reserved(gateway) == 0


def test_closing_a_run_returns_with_a_receipt_that_holds_the_call_it_cut(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script(SLOW)
    gateway = gateways(mock_process.url)
    run = gateway.opened()
    with RawClient(gateway.port) as client:
        client.chat(run.key, max_tokens=30)
        the_call(mock_process)
        receipt = close_the_run(gateway, run)
    assert receipt["totals"]["usage"]["output_tokens"]["sum"] == 30


def test_a_revoked_key_cuts_its_own_lane_and_no_other(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script(SLOW)
    lanes: dict[str, dict[str, object]] = {"foreground": {}, "background": {}}
    gateway = gateways(mock_process.url, policy={"lanes": lanes})
    run = gateway.opened()
    keys = {key["lane"]: key["key_id"] for key in gateway.control.get(f"/v1/keys?campaign={run.campaign}&run={run.run}")["keys"]}
    with RawClient(gateway.port) as one, RawClient(gateway.port) as other:
        one.chat(run.keys["foreground"], stream=True, max_tokens=400)
        other.chat(run.keys["background"], stream=True, max_tokens=30)
        one.read_events(2), other.read_events(2)
        gateway.control.post(f"/v1/keys/{keys['foreground']}/revoke")
        assert ends_with_final_words(one.answer(timeout_s=5))
        assert sse.finish_reason(other.answer().body) == "length"
    assert sorted(row["outcome"] for row in record.calls(gateway)) == ["closed_cut", "length"]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_call_that_is_cut_while_its_reservation_is_written_is_not_sent_and_void(gateways: GatewayMaker, mock_process: MockProcess, stream: bool) -> None:
    gateway = gateways(mock_process.url, policy=LIMITS, env={**HASTY, "GATEWAY_LATE": "Reserve"})
    run = gateway.opened()
    with RawClient(gateway.port) as client:
        client.chat(run.key, stream=stream, max_tokens=20)
        eventually(lambda: record.calls(gateway), "it is reserved")
        receipt = close_the_run(gateway, run)
        assert is_the_final_refusal(client.answer(timeout_s=5))
    assert [row["status"] for row in record.calls(gateway)] == ["voided"]
    assert receipt["totals"]["usage"]["output_tokens"]["sum"] == 0 == record.reserved(gateway)
    assert not mock_process.calls()
    assert record.fits(gateway)


def test_an_answer_too_large_to_hold_that_is_cut_is_a_broken_connection(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    pieces = ['{"choices":[{"message":{"content":"' + "x" * 6_000] + ["x" * 2_000] * 50
    mock_process.script({"raw": pieces, "raw_type": "application/json", "gap_ms": 100, "die": "eof"})
    gateway = gateways(mock_process.url, policy=LIMITS, settings={"bounds": {"max_response_bytes": 4_000}})
    run = gateway.opened()
    with RawClient(gateway.port) as client, ThreadPoolExecutor(1) as pool:
        client.chat(run.key, max_tokens=20)
        eventually(lambda: client.read_for(0.05).body, "a part of it is out")
        done = pool.submit(close_the_run, gateway, run)
        answer = client.answer(timeout_s=5)
        assert client.closed and not answer.complete and b"error" not in answer.body
        done.result(20)
    assert record.ending(record.closed_call(gateway))[0] == "closed_cut"


# The process itself ends.


def started_again(gateway: GatewayProcess) -> GatewayProcess:
    return gateway.start()


def nothing_was_lost(gateway: GatewayProcess) -> bool:
    started_again(gateway)
    assert record.entries(gateway, "expire") == 0
    assert record.entries(gateway, "receipt") == 0, "no receipt that is not due"
    assert not any(row["status"] == "reserved" for row in record.calls(gateway))
    return record.fits(gateway)


def is_told_that_it_shuts_down(answer: RawAnswer) -> bool:
    assert answer.status == 429 and answer.headers["retry-after"], answer
    assert answer.json()["error"]["code"] == "shutting_down"
    return True


def test_sigterm_refuses_new_and_waiting_calls_and_cuts_what_runs_too_long(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script(SLOW)
    gateway = gateways(mock_process.url, slots=2, policy=LIMITS, settings={"bounds": {"shutdown_seconds": 1}})
    run = gateway.opened()
    with RawClient(gateway.port) as stream, RawClient(gateway.port) as whole, RawClient(gateway.port) as waiting, RawClient(gateway.port) as idle:
        stream.chat(run.key, stream=True, max_tokens=400)
        stream.read_events(3)
        whole.chat(run.key, max_tokens=400)
        eventually(lambda: len(mock_process.calls()) == 2, "both run")
        waiting.chat(run.key, stream=True)
        eventually(lambda: gateway.control.get("/v1/status")["waiting"]["count"] == 1, "the third waits")
        began = time.monotonic()
        gateway.process.signal(signal.SIGTERM)
        assert is_told_that_it_shuts_down(waiting.answer(timeout_s=5))
        idle.chat(run.key)
        assert is_told_that_it_shuts_down(idle.answer(timeout_s=5))
        assert is_told_that_it_shuts_down(chat_once(gateway.port, run.key))
        assert time.monotonic() - began < 1, "refusals do not wait for the cut"
        assert ends_with_final_words(stream.answer(timeout_s=5), "shutting_down")
        assert is_the_final_refusal(whole.answer(timeout_s=5), "shutting_down")
        assert 0.8 < time.monotonic() - began < 4
    assert gateway.process.wait(timeout_s=20) == 0
    assert time.monotonic() - began < 8, "what an engine goes on with is not waited for"
    assert nothing_was_lost(gateway)
    rows = {bool(row["stream"]): row for row in record.calls(gateway)}
    assert record.ending(rows[True]) == ("shutdown_cut", "counted")
    assert record.ending(rows[False]) == ("shutdown_cut", "unknown")
    assert record.charge(rows[False]) == (rows[False]["reserved_input_tokens"], 400)
    assert record.reserved(gateway) == 0


def test_sigterm_lets_a_call_end_that_ends_in_time(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script(SLOW)
    gateway = gateways(mock_process.url, settings={"bounds": {"shutdown_seconds": 20}})
    run = gateway.opened()
    with RawClient(gateway.port) as stream, RawClient(gateway.port) as whole:
        stream.chat(run.key, stream=True, max_tokens=20)
        stream.read_events(3)
        whole.chat(run.key, max_tokens=20)
        eventually(lambda: len(mock_process.calls()) == 2, "both run")
        gateway.process.signal(signal.SIGTERM)
        assert sse.finish_reason(stream.answer().body) == "length"
        assert whole.answer().json()["usage"]["completion_tokens"] == 20
    assert gateway.process.wait(timeout_s=10) == 0
    assert nothing_was_lost(gateway)
    assert [record.ending(row) for row in record.calls(gateway)] == [("length", "reported")] * 2


@pytest.mark.parametrize("leaves", [False, True], ids=["all stay", "one has left"])
def test_a_second_sigterm_cuts_at_once(gateways: GatewayMaker, mock_process: MockProcess, leaves: bool) -> None:
    mock_process.script(SLOW)
    gateway = gateways(mock_process.url, policy=LIMITS, settings={"bounds": {"shutdown_seconds": 60}})
    run = gateway.opened()
    with RawClient(gateway.port) as stream, RawClient(gateway.port) as whole:
        stream.chat(run.key, stream=True, max_tokens=2_000)
        stream.read_events(3)
        whole.chat(run.key, max_tokens=2_000)
        eventually(lambda: len(mock_process.calls()) == 2, "both run")
        if leaves:
            whole.close()
            time.sleep(0.2)
        gateway.process.signal(signal.SIGTERM)
        time.sleep(0.3)
        assert gateway.process.returncode is None and not stream.so_far().complete
        gateway.process.signal(signal.SIGTERM)
        assert ends_with_final_words(stream.answer(timeout_s=5), "shutting_down")
        assert leaves or is_the_final_refusal(whole.answer(timeout_s=5), "shutting_down")
        assert gateway.process.wait(timeout_s=8) == 0
    assert nothing_was_lost(gateway)
    rows = {bool(row["stream"]): row for row in record.calls(gateway)}
    assert record.ending(rows[True]) == ("shutdown_cut", "counted")
    assert record.ending(rows[False]) == ("client_cancelled" if leaves else "shutdown_cut", "unknown")


def test_a_shutdown_does_not_wait_for_an_engine_that_works_for_nobody(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script({"prefill_ms": 60_000})
    gateway = gateways(mock_process.url, policy=LIMITS, settings={"bounds": {"shutdown_seconds": 1}})
    with RawClient(gateway.port) as client:
        client.chat(gateway.opened().key, max_tokens=20)
        the_call(mock_process)
        client.close()
    time.sleep(0.2)
    assert gateway.stop(timeout_s=8) == 0
    assert nothing_was_lost(gateway)
    (row,) = record.calls(gateway)
    assert record.ending(row) == ("client_cancelled", "unknown")
    assert record.entries(gateway, "event", named="cancel_unconfirmed") == 1
