"""The client leaves, tried against a process: what happens to the engine's work, the slot, the reservation and the record."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gateway.demo.engine import RealEngine
from tests.conftest import GatewayMaker
from tests.support import record, sse
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawClient, chat_once
from tests.support.waiting import eventually

LIMITS = {"run": {"requests": 1_000, "output_tokens": 1_000_000, "concurrent": 100}}
WITHIN_MS = 500
Leave = Callable[[RawClient], int]
WAYS = pytest.mark.parametrize("leave", [RawClient.close, RawClient.reset, RawClient.half_close], ids=["fin", "rst", "half-close"])


def busy(gateway: GatewayProcess) -> int:
    number: int = gateway.control.get("/v1/status")["upstreams"][0]["busy"]
    return number


def waiting(gateway: GatewayProcess) -> int:
    number: int = gateway.control.get("/v1/status")["waiting"]["count"]
    return number


def nothing_is_held(gateway: GatewayProcess) -> bool:
    status = gateway.control.get("/v1/status")
    return (status["in_flight"], status["waiting"]["count"], busy(gateway), record.reserved(gateway)) == (0, 0, 0, 0)


def the_call(engine: MockProcess) -> dict[str, Any]:
    eventually(engine.calls, "the engine has the call")
    return engine.calls()[0]


def seen_to_leave_after_ms(engine: MockProcess, left_unix_ns: int) -> float:
    eventually(lambda: the_call(engine)["left"], "the engine sees that it is left")
    moment: float = the_call(engine)["left"]["unix_ns"]
    return (moment - left_unix_ns) / 1e6


@WAYS
def test_a_client_that_leaves_while_it_waits_leaves_nothing(gateways: GatewayMaker, mock_process: MockProcess, leave: Leave) -> None:
    mock_process.script({"gap_ms": 30})
    gateway = gateways(mock_process.url, slots=1, policy=LIMITS)
    key = gateway.opened().key
    with RawClient(gateway.port) as first, RawClient(gateway.port) as second:
        first.chat(key, stream=True, max_tokens=60)
        first.read_events(2)
        second.chat(key, stream=True, max_tokens=60)
        eventually(lambda: waiting(gateway) == 1, "the second call waits")
        held = record.reserved(gateway)
        leave(second)
        eventually(lambda: waiting(gateway) == 0, "the second call waits no more")
        assert record.reserved(gateway) == held
        assert not first.so_far().complete
        assert first.answer().complete
    eventually(lambda: nothing_is_held(gateway), "nothing is held")
    assert chat_once(gateway.port, key, max_tokens=1).complete, "the slot is free for the next"
    assert [row["outcome"] for row in record.calls(gateway)] == ["length", "length"]
    assert len(mock_process.calls()) == 2
    assert record.entries(gateway, "refuse") == record.entries(gateway, "void") == 0
    assert record.fits(gateway)


@WAYS
def test_a_stream_that_is_left_before_its_first_byte_is_closed_at_the_engine(gateways: GatewayMaker, mock_process: MockProcess, leave: Leave) -> None:
    mock_process.script({"prefill_ms": 5_000})
    gateway = gateways(mock_process.url, policy=LIMITS)
    with RawClient(gateway.port) as client:
        client.chat(gateway.opened().key, stream=True, max_tokens=20)
        the_call(mock_process)
        left = leave(client)
        assert seen_to_leave_after_ms(mock_process, left) < WITHIN_MS
    row = record.closed_call(gateway)
    assert record.ending(row) == ("client_cancelled", "unknown")
    assert row["output_tokens"] is None
    assert record.charge(row) == (row["reserved_input_tokens"], 0)
    eventually(lambda: nothing_is_held(gateway), "nothing is held")


@WAYS
def test_a_stream_that_is_left_in_its_middle_is_closed_at_the_engine_and_counted(gateways: GatewayMaker, mock_process: MockProcess, leave: Leave) -> None:
    mock_process.script({"gap_ms": 40})
    gateway = gateways(mock_process.url, policy=LIMITS)
    with RawClient(gateway.port) as client:
        client.chat(gateway.opened().key, stream=True, max_tokens=200)
        client.read_events(6)
        left = leave(client)
        assert seen_to_leave_after_ms(mock_process, left) < WITHIN_MS
    row = record.closed_call(gateway)
    assert record.ending(row) == ("client_cancelled", "counted")
    assert 5 <= row["output_tokens"] <= the_call(mock_process)["output_tokens"] < 200
    assert record.charge(row)[1] == row["output_tokens"]
    eventually(lambda: nothing_is_held(gateway), "nothing is held")
    assert record.fits(gateway)


def test_a_stream_that_is_left_may_be_charged_its_reservation_where_the_policy_says_so(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script({"gap_ms": 40})
    gateway = gateways(mock_process.url, policy={**LIMITS, "charging": {"cut_streams": "reserved"}})
    with RawClient(gateway.port) as client:
        client.chat(gateway.opened().key, stream=True, max_tokens=200)
        client.read_events(6)
    row = record.closed_call(gateway)
    assert record.ending(row) == ("client_cancelled", "counted")
    assert 5 <= row["output_tokens"] < 200 == record.charge(row)[1]


@WAYS
def test_a_call_that_does_not_stream_is_read_to_its_end_for_nobody(gateways: GatewayMaker, mock_process: MockProcess, leave: Leave) -> None:
    mock_process.script({"gap_ms": 40})
    gateway = gateways(mock_process.url, slots=1, policy=LIMITS)
    key = gateway.opened().key
    with RawClient(gateway.port) as client:
        client.chat(key, max_tokens=40)
        the_call(mock_process)
        leave(client)
        time.sleep(0.3)
        assert busy(gateway) == 1 and record.reserved(gateway) > 0, "slot and reservation are held while the engine is at work"
        assert not record.calls(gateway)[0]["outcome"]
    row = record.closed_call(gateway)
    seen = the_call(mock_process)
    assert (seen["end"], seen["left"]) == ("completed", None)
    assert record.ending(row) == ("client_cancelled", "reported")
    assert record.usage(row) == record.charge(row) == (seen["prompt_tokens"], 40)
    eventually(lambda: nothing_is_held(gateway), "nothing is held")


def test_a_call_that_does_not_end_within_drain_seconds_is_closed_and_charged_whole(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script({"prefill_ms": 20_000})
    gateway = gateways(mock_process.url, policy=LIMITS, settings={"bounds": {"drain_seconds": 1}})
    with RawClient(gateway.port) as client:
        client.chat(gateway.opened().key, max_tokens=20)
        the_call(mock_process)
        left = client.close()
    assert 900 < seen_to_leave_after_ms(mock_process, left) < 4_000
    row = record.closed_call(gateway)
    assert record.ending(row) == ("client_cancelled", "unknown")
    assert record.usage(row) == (None, None)
    assert record.charge(row) == (row["reserved_input_tokens"], 20)
    assert record.entries(gateway, "event", named="cancel_unconfirmed") == 1
    eventually(lambda: nothing_is_held(gateway), "nothing is held")
    assert record.fits(gateway)


def test_a_client_that_leaves_on_the_terminal_event_had_a_complete_answer(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script({"gap_ms": 5, "output_tokens": 6})
    gateway = gateways(mock_process.url)
    with RawClient(gateway.port) as client:
        client.chat(gateway.opened().key, stream=True, max_tokens=20)
        while not any(event.done for event in client.so_far().events):
            client.read_events(len(client.so_far().events) + 1)
        client.reset()
    row = record.closed_call(gateway)
    assert record.ending(row) == ("completed", "reported")
    assert row["output_tokens"] == 6


@WAYS
def test_a_client_that_leaves_while_the_terminal_event_is_held_back_changes_nothing(gateways: GatewayMaker, mock_process: MockProcess, leave: Leave) -> None:
    events = [b'{"choices":[{"index":0,"delta":{"content":"hi"}}]}', b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":USED}', b"[DONE]"]
    used = b'{"prompt_tokens":11,"completion_tokens":1,"total_tokens":12}'
    mock_process.script({"raw": [f"data: {event.replace(b'USED', used).decode()}\n\n" for event in events], "die": "hang", "gap_ms": 30})
    gateway = gateways(mock_process.url)
    with RawClient(gateway.port) as client:
        client.chat(gateway.opened().key, stream=True, max_tokens=20)
        client.read_events(2)
        time.sleep(0.2)
        assert not sse.events(client.read_for(0.1).body)[-1].done, "held back while the engine's body goes on"
        leave(client)
    row = record.closed_call(gateway)
    assert record.ending(row) == ("completed", "reported")
    assert record.usage(row) == (11, 1)


def test_an_error_that_was_seen_stays_the_outcome_though_the_client_leaves_on_it(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    events = ['{"choices":[{"index":0,"delta":{"content":"hi"}}]}', '{"error":{"code":500,"message":"no","type":"server_error"}}']
    mock_process.script({"raw": [f"data: {event}\n\n" for event in events], "die": "hang", "gap_ms": 30})
    gateway = gateways(mock_process.url)
    with RawClient(gateway.port) as client:
        client.chat(gateway.opened().key, stream=True, max_tokens=20)
        client.read_events(1)
        time.sleep(0.2)
        client.close()
    assert record.ending(record.closed_call(gateway)) == ("engine_error", "counted")


@WAYS
def test_a_client_that_leaves_while_its_prompt_is_counted_leaves_nothing(gateways: GatewayMaker, mock_process: MockProcess, leave: Leave) -> None:
    gateway = gateways(mock_process.url, policy={"run": {"input_tokens": 60}})
    key = gateway.opened().key
    assert chat_once(gateway.port, key, max_tokens=1).status == 200, "the bound does not fit, the count does"
    mock_process.script({"helper_ms": 2_000})
    with RawClient(gateway.port) as client:
        client.chat(key, messages=[{"role": "user", "content": "something new to count"}], stream=True)
        eventually(lambda: waiting(gateway) == 1, "it waits for its count")
        leave(client)
        eventually(lambda: nothing_is_held(gateway), "nothing is held", timeout_s=1.5)
    assert len(record.calls(gateway)) == len(mock_process.calls()) == 1


@pytest.mark.parametrize("die", ["reset", "eof"])
def test_an_engine_that_dies_while_its_answer_is_read_for_nobody_is_charged_the_prompt(gateways: GatewayMaker, mock_process: MockProcess, die: str) -> None:
    """What the engine caused is not charged, though the client left first."""
    mock_process.script({"prefill_ms": 400, "die": die})
    gateway = gateways(mock_process.url, policy=LIMITS)
    with RawClient(gateway.port) as client:
        client.chat(gateway.opened().key, max_tokens=20)
        the_call(mock_process)
    row = record.closed_call(gateway)
    assert record.ending(row) == ("client_cancelled", "unknown")
    assert record.charge(row) == (row["reserved_input_tokens"], 0)
    eventually(lambda: nothing_is_held(gateway), "nothing is held")


def test_a_client_that_stopped_reading_and_leaves_is_heard(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script({"gap_ms": 1, "padding_bytes": 200_000})
    gateway = gateways(mock_process.url, policy=LIMITS)
    with RawClient(gateway.port) as client:
        client.chat(gateway.opened().key, stream=True, max_tokens=2_000)
        client.read_events(1)
        time.sleep(1.0)  # all buffers on the way are full
        assert the_call(mock_process)["output_tokens"] < 2_000 and not the_call(mock_process)["left"]
        left = client.close()
        assert seen_to_leave_after_ms(mock_process, left) < WITHIN_MS
    assert record.ending(record.closed_call(gateway)) == ("client_cancelled", "counted")
    eventually(lambda: nothing_is_held(gateway), "nothing is held")


def test_many_clients_that_leave_at_once_leave_nothing_behind(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    """Some leave while their reservation is being written: it is voided; others when it was sent: it is settled."""
    mock_process.script({"gap_ms": 2})
    gateway = gateways(mock_process.url, slots=6, policy=LIMITS)
    key = gateway.opened().key
    chat_once(gateway.port, key, max_tokens=3)

    def come_and_go(number: int, longest_s: float) -> None:
        with RawClient(gateway.port) as client:
            client.chat(key, stream=number % 2 == 0, max_tokens=5)
            time.sleep(random.Random(number).uniform(0, longest_s))
            client.reset() if number % 3 else client.close()

    for longest_ms in (5, 20, 80, 320):  # how long it takes to be reserved hangs on the machine
        with ThreadPoolExecutor(12) as pool:
            list(pool.map(lambda number, longest_s=longest_ms / 1000: come_and_go(number, longest_s), range(120)))
        eventually(lambda: nothing_is_held(gateway), "nothing is held")
        kinds = Counter(row["outcome"] or row["status"] for row in record.calls(gateway))
        if kinds["voided"] > 10 and kinds["client_cancelled"] > 10:
            break
    assert kinds["voided"] and kinds["client_cancelled"], kinds
    assert kinds.keys() <= {"voided", "client_cancelled", "length"}
    rows = {row["call_id"]: row for row in record.calls(gateway)}
    saw = {call["request_id"] for call in mock_process.calls()}
    assert saw <= rows.keys() and all(rows[call]["status"] == "settled" for call in saw)
    assert chat_once(gateway.port, key, max_tokens=3).status == 200
    assert gateway.stop() == 0
    assert record.fits(gateway)


def test_on_a_real_engine_the_slot_of_a_left_stream_is_free_three_seconds_later(gateways: GatewayMaker, smollm2: RealEngine) -> None:
    before = smollm2.counters()
    gateway = gateways(smollm2.address, slots=1, policy={"models": {"mock": {"counter": "engine"}}}, models={"mock": "smollm2"})
    with RawClient(gateway.port) as client:
        client.chat(gateway.opened().key, stream=True, max_tokens=3_000, ignore_eos=True)
        client.read_events(5)
        client.close()
    time.sleep(3)  # asking in between would keep the engine from cancelling
    assert smollm2.busy_slots() == 0
    assert (smollm2.counters() - before).output_tokens < 1_500, "it was cancelled, it did not just end"
    row = record.closed_call(gateway)
    assert record.ending(row) == ("client_cancelled", "counted")
    assert row["output_tokens"] >= 4
