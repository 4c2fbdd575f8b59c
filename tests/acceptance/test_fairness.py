"""The one waiting place, over sockets: whose turn it is, who passes by, how a wait ends. What was sent, and when, is read from the engine's own log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from gateway.ledger.reading import LedgerReader
from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, chat_once
from tests.support.toml import Tables
from tests.support.waiting import eventually

QUEUE_LENGTH = 55
FLOOD = 50
PLAYBOOK = {
    "models": {
        "turn": {"output_tokens": 10, "gap_ms": 5},
        "slow": {"output_tokens": 10, "gap_ms": 300},
    }
}
UPSTREAMS: dict[str, tuple[int, dict[str, str]]] = {
    "engine": (1, {"single": "turn", "single-slow": "slow"}),
    "pair": (2, {"pair": "turn"}),
    "other": (1, {"other": "turn"}),
    "wide": (64, {"wide": "turn", "wide-slow": "slow"}),
}
LANES: Tables = {"foreground": {}, "background": {}}
POLICIES: dict[str, Tables] = {
    "plain": {"lanes": LANES},
    "lane": {"lanes": LANES, "run": {"background": {"concurrent": 1}}},
    "tokens": {"campaign": {"output_tokens": 2_600}},
    "room": {"run": {"output_tokens": 100}},
    "brief": {"admission": {"queue_seconds": 1}},
    "clamp": {"run": {"output_tokens": 200}, "admission": {"clamp_after_seconds": 1, "enough_output_tokens": 50, "min_output_tokens": 10}},
}


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess(script=PLAYBOOK) as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    upstreams = {name: {"address": mock.url, "engine": "llama.cpp", "slots": slots, "models": models} for name, (slots, models) in UPSTREAMS.items()}
    names = [model for _, models in UPSTREAMS.values() for model in models]
    policies: Any = {
        name: {"apis": ["openai.chat"], "models": {model: {"default_output_tokens": 64} for model in names}, **tables} for name, tables in POLICIES.items()
    }
    settings: Any = {"upstreams": upstreams, "bounds": {"queue_length": QUEUE_LENGTH}}
    models = UPSTREAMS["engine"][1]
    policy: Any = {"models": {model: {"default_output_tokens": 64} for model in models}}
    with GatewayProcess(
        tmp_path_factory.mktemp("fairness"), mock.url, policies=policies, settings=settings, slots=1, models={"mock": "turn"}, policy=policy
    ) as process:
        yield process


Calls = Callable[..., "Future[RawAnswer]"]


@pytest.fixture
def calls(gateway: GatewayProcess) -> Iterator[Calls]:
    """Starts a call on a thread of its own; by the end of the test all are answered."""
    with ThreadPoolExecutor(128) as pool:

        def call(run: OpenedRun, model: str, *, lane: str = "foreground", **body: object) -> Future[RawAnswer]:
            whole: Any = {"max_tokens": 20, **body}
            return pool.submit(lambda: chat_once(gateway.port, run.keys[lane], model=model, **whole))

        yield call


def waiting(gateway: GatewayProcess, run: OpenedRun | None = None) -> int:
    """How many calls wait, of a run or of all."""
    view = gateway.control.get("/v1/status")["waiting"]
    return int(view["count"]) if run is None else sum(1 for one in view["calls"] if (one["campaign"], one["run"]) == (run.campaign, run.run))


def arrival(mock: MockProcess, answer: RawAnswer) -> int:
    """When the engine got it: monotonic ns."""
    [record] = [record for record in mock.calls() if record["request_id"] == answer.headers["x-request-id"]]
    return int(record["arrival"]["monotonic_ns"])


def record_of(mock: MockProcess, answer: RawAnswer) -> dict[str, Any]:
    [record] = [record for record in mock.calls() if record["request_id"] == answer.headers["x-request-id"]]
    return record


def around(gateway: GatewayProcess, answer: RawAnswer) -> tuple[int, int]:
    """How many calls of its campaign and model were admitted while this one waited, and how many after it."""
    with LedgerReader(gateway.ledger) as reader:
        rows: list[Any] = reader.query("SELECT * FROM calls ORDER BY reserve_number")
    [own] = [row for row in rows if row["call_id"] == answer.headers["x-request-id"]]
    assert own["waited_ms"] > 0
    came_ms = own["admitted_ms"] - own["waited_ms"]
    others = [row for row in rows if (row["campaign"], row["model"]) == (own["campaign"], own["model"]) and row is not own]
    before = [row for row in others if row["admitted_ms"] > came_ms and row["reserve_number"] < own["reserve_number"]]
    return len(before), sum(row["reserve_number"] > own["reserve_number"] for row in others)


@pytest.mark.parametrize(
    ("model", "policy", "output"), [("single", "plain", 20), ("pair", "plain", 20), ("wide", "tokens", 1_000)], ids=["slot", "two_slots", "tokens"]
)
def test_the_single_call_of_a_run_is_sent_at_the_next_turn_whatever_another_run_floods(
    gateway: GatewayProcess, mock: MockProcess, calls: Calls, model: str, policy: str, output: int
) -> None:
    """Where slots are scarce, and where it is the tokens of the campaign."""
    flooding, lone = (gateway.opened(f"flood-{model}", name, policy=policy) for name in ("flood", "lone"))
    large = [{"role": "user", "content": "word " * 400}]
    flood = [calls(flooding, model, max_tokens=output, messages=large) for _ in range(FLOOD)]
    eventually(lambda: waiting(gateway, flooding) >= FLOOD // 2, "the flood waits", every_s=0.005)
    answer = calls(lone, model, max_tokens=output).result()
    assert answer.status == 200, answer.body
    assert [one.result().status for one in flood] == [200] * FLOOD
    before, after = around(gateway, answer)
    assert before <= 1, "one slot's turn, at most"
    assert after >= FLOOD // 4, "the flood had not ended by itself"


def test_calls_of_one_run_and_lane_are_sent_in_the_order_in_which_they_came(gateway: GatewayProcess, mock: MockProcess, calls: Calls) -> None:
    run = gateway.opened("order", "r1", policy="plain")
    first = calls(run, "single-slow", max_tokens=3)
    started: list[Future[RawAnswer]] = []
    eventually(lambda: gateway.control.metric("gateway_in_flight_calls") == 1, "the slot is taken")
    for number in range(5):
        started.append(calls(run, "single", max_tokens=2 + number))
        eventually(lambda: waiting(gateway, run) == len(started) or first.done(), "it waits")
    arrivals = [arrival(mock, one.result()) for one in started]
    assert arrivals == sorted(arrivals)
    assert arrivals[0] > arrival(mock, first.result())


def test_while_thirty_calls_of_one_lane_wait_another_lane_and_an_idle_engine_serve_at_once(gateway: GatewayProcess, mock: MockProcess, calls: Calls) -> None:
    run = gateway.opened("lanes", "r1", policy="lane")
    stuck = [calls(run, "wide", lane="background") for _ in range(30)]
    eventually(lambda: waiting(gateway, run) >= 20, "background waits for its own limit", every_s=0.005)
    other_lane = calls(run, "wide").result()
    other_engine = calls(run, "other").result()
    assert not stuck[-1].done() or waiting(gateway, run) > 0
    for answer in (other_lane, other_engine):
        assert answer.status == 200
        assert int(answer.headers.get("x-gateway-waited-ms", "0")) < 400, "it did not wait for a turn of the others"
    assert [one.result().status for one in stuck] == [200] * 30


def test_lanes_of_a_run_take_turns_at_an_engine_and_another_engine_is_free(gateway: GatewayProcess, mock: MockProcess, calls: Calls) -> None:
    run = gateway.opened("turns", "r1", policy="plain")
    stuck = [calls(run, "single", lane="background") for _ in range(30)]
    eventually(lambda: waiting(gateway, run) >= 20, "background waits for a slot", every_s=0.005)
    idle = calls(run, "other", lane="background").result()
    answer = calls(run, "single").result()
    assert [one.result().status for one in stuck] == [200] * 30
    assert idle.status == answer.status == 200
    assert int(idle.headers.get("x-gateway-waited-ms", "0")) < 400
    before, after = around(gateway, answer)
    assert before <= 1
    assert after >= 5


def test_a_call_waits_for_room_that_another_holds_and_is_sent_whole_when_it_settles(gateway: GatewayProcess, mock: MockProcess, calls: Calls) -> None:
    run = gateway.opened("room", "r1", policy="room")
    holding = calls(run, "wide-slow", max_tokens=80)
    eventually(lambda: gateway.control.metric("gateway_in_flight_calls") == 1, "the first is at work")
    second = calls(run, "wide", max_tokens=80)
    eventually(lambda: waiting(gateway, run) == 1, "the second waits")
    assert not holding.done()
    first, answer = holding.result(), second.result()
    assert (first.status, answer.status) == (200, 200)
    assert int(answer.headers["x-gateway-waited-ms"]) > 0
    assert "x-gateway-clamped" not in answer.headers
    assert record_of(mock, answer)["arrival"]["monotonic_ns"] > record_of(mock, first)["ended"]["monotonic_ns"]
    assert json.loads(record_of(mock, answer)["body"])["max_tokens"] == 80


def test_a_call_takes_what_is_free_once_it_has_waited_and_that_is_enough(gateway: GatewayProcess, mock: MockProcess, calls: Calls) -> None:
    run = gateway.opened("clamp", "r1", policy="clamp")
    holding = calls(run, "wide-slow", max_tokens=120)
    eventually(lambda: gateway.control.metric("gateway_in_flight_calls") == 1, "the first is at work")
    answer = calls(run, "wide", max_tokens=120).result()
    assert not holding.done()
    assert answer.status == 200
    assert 1_000 <= int(answer.headers["x-gateway-waited-ms"]) < 4_000
    assert answer.headers["x-gateway-clamped"] == "80 run.output_tokens"
    assert json.loads(record_of(mock, answer)["body"])["max_tokens"] == 80


def check_passing(answer: RawAnswer, code: str) -> None:
    assert (answer.status, answer.json()["error"]["code"]) == (429, code)
    assert answer.headers["retry-after"] == "2"
    assert answer.headers.get("x-should-retry") != "false"
    assert 1_000 <= int(answer.headers["x-gateway-waited-ms"]) < 4_000


def test_a_wait_that_is_over_ends_with_the_passing_refusal(gateway: GatewayProcess, mock: MockProcess, calls: Calls) -> None:
    run = gateway.opened("brief", "r1", policy="brief")
    holding = calls(run, "single-slow")
    eventually(lambda: gateway.control.metric("gateway_in_flight_calls") == 1, "the slot is taken")
    refused = calls(run, "single").result()
    check_passing(refused, "busy")
    assert not [record for record in mock.calls() if record["request_id"] == refused.headers["x-request-id"]]
    assert holding.result().status == 200
    with LedgerReader(gateway.ledger) as reader:
        assert [(row["code"], row["final"]) for row in reader.refusals(campaign="brief")] == [("busy", 0)]
        assert len(reader.calls(campaign="brief")) == 1, "what left the queue unsent is in no count"


def test_a_queue_that_is_full_says_that_the_gateway_is_overloaded(gateway: GatewayProcess, mock: MockProcess, calls: Calls) -> None:
    run = gateway.opened("full", "r1", policy="plain")
    slow = calls(run, "single-slow")
    eventually(lambda: gateway.control.metric("gateway_in_flight_calls") == 1, "the slot is taken")
    stuck = [slow, *(calls(run, "single", max_tokens=2) for _ in range(QUEUE_LENGTH))]
    eventually(lambda: waiting(gateway) == QUEUE_LENGTH, "the queue is full", every_s=0.005)
    answer = calls(run, "single").result()
    assert (answer.status, answer.json()["error"]["code"]) == (503, "overloaded")
    assert [one.result().status for one in stuck] == [200] * (QUEUE_LENGTH + 1)


def test_calls_of_a_halted_campaign_wait_and_go_when_it_is_resumed(gateway: GatewayProcess, mock: MockProcess, calls: Calls) -> None:
    run = gateway.opened("halted", "r1", policy="plain")
    running = calls(run, "wide-slow", max_tokens=4)
    eventually(lambda: gateway.control.metric("gateway_in_flight_calls") == 1, "one is at work")
    gateway.control.post("/v1/campaigns/halted/halt", {"reason": "a look"})
    held = calls(run, "wide")
    eventually(lambda: waiting(gateway, run) == 1, "it waits though slots and room are there")
    other = gateway.opened("not-halted", "r1", policy="plain")
    assert calls(other, "wide").result().status == 200
    assert running.result().status == 200, "what runs goes on"
    assert not held.done()
    resumed = time.monotonic_ns()
    gateway.control.post("/v1/campaigns/halted/resume")
    answer = held.result()
    assert answer.status == 200
    assert arrival(mock, answer) > resumed


def test_a_wait_in_a_halted_campaign_ends_with_its_own_passing_refusal(gateway: GatewayProcess, mock: MockProcess, calls: Calls) -> None:
    run = gateway.opened("halted-brief", "r1", policy="brief")
    gateway.control.post("/v1/campaigns/halted-brief/halt")
    check_passing(calls(run, "wide").result(), "campaign_halted")
    gateway.control.post("/v1/campaigns/halted-brief/resume")
    assert calls(run, "wide").result().status == 200


def test_nothing_waits_and_nothing_is_held_when_all_is_over(gateway: GatewayProcess) -> None:
    eventually(lambda: gateway.control.metric("gateway_in_flight_calls") == 0, "nothing is in flight")
    assert waiting(gateway) == 0
    assert gateway.control.metric("gateway_slots_busy") == 0
    with LedgerReader(gateway.ledger) as reader:
        assert reader.verify().fits
