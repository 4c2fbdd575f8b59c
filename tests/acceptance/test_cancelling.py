"""A call whose connection to the engine was closed: a while later the engine is asked whether it stopped, and no assumption stands in for its answer."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gateway.demo.engine import RealEngine
from tests.conftest import GatewayMaker
from tests.support import record
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawClient, chat_once
from tests.support.waiting import eventually

LOOKED_S = 30.0
"""One look, and the distance to another."""


def results(gateway: GatewayProcess) -> dict[str, float]:
    """By what the engine said; what it never said stands at 0 and is left out."""
    lines = gateway.control.raw("GET", "/metrics")[1].decode().splitlines()
    found = (line.removeprefix("gateway_cancellations_total").split(" ") for line in lines if line.startswith("gateway_cancellations_total{"))
    return {labels.partition('result="')[2].partition('"')[0]: float(number) for labels, number in found if float(number)}


def told(gateway: GatewayProcess, **wanted: float) -> None:
    eventually(lambda: results(gateway) == wanted, f"the engine was asked: {wanted}", timeout_s=LOOKED_S)


def left_stream(gateway: GatewayProcess, key: str, **body: object) -> None:
    with RawClient(gateway.port) as client:
        client.chat(key, stream=True, **{"max_tokens": 400, **body})
        client.read_events(3)


def explained(gateway: GatewayProcess) -> dict[str, Any]:
    found: dict[str, Any] = gateway.control.get(f"/v1/calls/{record.calls(gateway)[0]['call_id']}")
    return found


def on_record(gateway: GatewayProcess, line: str) -> None:
    """The metric counts when the entry is posted, which is a moment before it stands."""
    eventually(lambda: line in explained(gateway)["why"], line)


def test_an_engine_that_goes_on_is_on_record_about_the_call_and_explained(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script({"gap_ms": 100, "ignores_leaving": True})
    gateway = gateways(mock_process.url)
    run = gateway.opened()
    left_stream(gateway, run.key)
    row = record.closed_call(gateway, timeout_s=1.5)
    assert record.ending(row) == ("client_cancelled", "counted"), "the settlement waits for no look"
    assert results(gateway) == {}
    told(gateway, unconfirmed=1)
    assert mock_process.calls()[0]["left"] and not mock_process.calls()[0]["end"], "the engine is still at work"
    on_record(gateway, "on record: cancel_unconfirmed (found still_at_work, upstream engine)")
    assert record.fits(gateway)


def test_an_engine_that_stopped_is_confirmed_though_other_calls_run_there(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script({"gap_ms": 50})
    gateway = gateways(mock_process.url)
    key = gateway.opened().key
    with RawClient(gateway.port) as other, RawClient(gateway.port) as alike:
        other.chat(key, stream=True, max_tokens=300)
        alike.chat(key, stream=True, max_tokens=400)
        alike.read_events(3)
        left_stream(gateway, key)
        told(gateway, confirmed=1)
        assert sum(not call["end"] for call in mock_process.calls()) == 2
    assert record.entries(gateway, "event", named="cancel_unconfirmed") == 0
    looks = [one for one in mock_process.log() if one["path"] == "/slots"]
    assert len(looks) == 1, "asked once: asking again and again would keep an engine from cancelling"
    left = min(call["left"]["monotonic_ns"] for call in mock_process.calls() if call["left"])
    assert 2.5e9 < looks[0]["arrival"]["monotonic_ns"] - left < 6.5e9


def test_the_next_call_in_the_same_slot_does_not_stand_for_the_left_one(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    """The engine has one slot and works on in it; the call that came after waits inside the engine."""
    mock_process.script({"slots": 1, "gap_ms": 100, "ignores_leaving": True})
    gateway = gateways(mock_process.url, slots=1)
    key = gateway.opened().key
    left_stream(gateway, key)
    with RawClient(gateway.port) as after:
        after.chat(key, stream=True, max_tokens=400)
        told(gateway, unknown=1)
    on_record(gateway, "on record: cancel_unconfirmed (found cannot_be_told_apart, upstream engine)")


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_closed_run_is_confirmed_too_and_what_is_found_stands_behind_its_receipt(gateways: GatewayMaker, mock_process: MockProcess, goes_on: bool) -> None:
    mock_process.script({"gap_ms": 100, "ignores_leaving": goes_on})
    gateway = gateways(mock_process.url)
    run = gateway.opened()
    with RawClient(gateway.port) as client:
        client.chat(run.key, stream=True, max_tokens=400)
        client.read_events(3)
        closed = gateway.control.post(f"/v1/campaigns/c1/runs/{run.run}/close", {"results": {}})
        assert closed["receipt"]
    told(gateway, **{"unconfirmed" if goes_on else "confirmed": 1})
    eventually(lambda: record.entries(gateway, "event", named="cancel_unconfirmed") == goes_on, "what was found is on record")
    assert record.fits(gateway)


def test_an_engine_that_cannot_be_asked_is_recorded_as_that(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script({"gap_ms": 30})
    gateway = gateways(mock_process.url, engine="generic", policy={"models": {"mock": {"counter": "tiktoken:o200k_base"}}})
    left_stream(gateway, gateway.opened().key)
    told(gateway, unknown=1)
    on_record(gateway, "on record: cancel_unconfirmed (found engine_cannot_be_asked, upstream engine)")


def test_a_gateway_that_stops_waits_for_no_look_and_says_that_it_did_not_ask(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script({"gap_ms": 30})
    gateway = gateways(mock_process.url, settings={"bounds": {"shutdown_seconds": 0}})
    key = gateway.opened().key
    with RawClient(gateway.port) as running:
        running.chat(key, stream=True, max_tokens=400)
        running.read_events(3)
        left_stream(gateway, key)
        eventually(lambda: any(call["left"] for call in mock_process.calls()), "the engine sees that it is left")
        begun = time.monotonic()
        assert gateway.stop() == 0
        assert time.monotonic() - begun < 2.5
    assert record.entries(gateway, "event", named="cancel_unconfirmed") == 2
    assert record.fits(gateway)


def test_calls_that_end_by_themselves_are_not_asked_about(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    gateway = gateways(mock_process.url)
    key = gateway.opened().key
    for body in ({}, {"stream": True}):
        assert chat_once(gateway.port, key, max_tokens=4, **body).complete
    mock_process.script({"gap_ms": 5, "die": "reset", "die_after": 3})
    chat_once(gateway.port, key, stream=True, max_tokens=8)
    time.sleep(4)
    assert results(gateway) == {}
    assert not [one for one in mock_process.log() if one["path"] == "/slots"]


def test_a_real_engine_confirms_that_it_stopped(gateways: GatewayMaker, smollm2: RealEngine) -> None:
    before = smollm2.counters()
    gateway = gateways(smollm2.address, slots=1, policy={"models": {"mock": {"counter": "engine"}}}, models={"mock": "smollm2"})
    left_stream(gateway, gateway.opened().key, max_tokens=3_000, ignore_eos=True)
    told(gateway, confirmed=1)
    assert record.entries(gateway, "event", named="cancel_unconfirmed") == 0
    assert (smollm2.counters() - before).output_tokens < 1_500, "it was cancelled, it did not just end"
