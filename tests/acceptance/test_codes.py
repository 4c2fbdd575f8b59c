"""What an agent is told, code by code: status, code, words and headers, by a real process. Numbers stand in headers, and nowhere where the policy says so."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from gateway.dialects.retry_words import is_final_wording
from tests.conftest import GatewayMaker
from tests.support.control import OpenedRun
from tests.support.gateway_process import POLICY, GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import CHAT, RawAnswer, chat_once
from tests.support.toml import Tables, merged
from tests.support.wire import Wire, request, talk

NUMBERS = {"x-gateway-ceiling", "x-gateway-settled", "x-gateway-reserved", "x-gateway-asked"}
LEFT = {"x-gateway-left-requests", "x-gateway-left-input", "x-gateway-left-output"}
SPENT: Tables = {"run": {"requests": 1, "output_tokens": 1_000, "input_tokens": 1_000}}
POLICIES: dict[str, Tables] = {
    "spent": SPENT,
    "silent": {**SPENT, "agent": {"tell_agent": False}},
    "other-status": {**SPENT, "agent": {"refusal_status": {"openai.chat": 402}}},
    "prompt": {"call": {"prompt_tokens": 3, "output_tokens": 16}},
    "prompt-402": {"call": {"prompt_tokens": 3, "output_tokens": 16}, "agent": {"refusal_status": {"openai.chat": 402}}},
    "prompt-overflow": {"call": {"prompt_tokens": 3, "output_tokens": 16}, "admission": {"over_prompt": "overflow"}},
    "context": {"models": {"mock": {"context_tokens": 4}}},
    "context-silent": {"models": {"mock": {"context_tokens": 4}}, "agent": {"tell_agent": False}},
    "no-wait": {"admission": {"queue_seconds": 0}},
    "clamped": {"call": {"output_tokens": 5}, "run": {"output_tokens": 8}, "admission": {"min_output_tokens": 1, "enough_output_tokens": 1}},
    "clamped-silent": {
        "run": {"output_tokens": 8}, "admission": {"min_output_tokens": 1, "enough_output_tokens": 1}, "agent": {"tell_agent": False},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    whole = {name: merged(POLICY, tables) for name, tables in POLICIES.items()}
    with GatewayProcess(tmp_path_factory.mktemp("codes"), mock.url, policies=whole) as process:
        yield process
        assert process.stop() == 0


@dataclass(frozen=True)
class Told:
    code: str
    status: int
    limit: str | None = None
    retries: bool = False
    numbers: bool = True


def spend(gateway: GatewayProcess, run: OpenedRun) -> None:
    assert chat_once(gateway.port, run.key, max_tokens=3).status == 200


def close(gateway: GatewayProcess, run: OpenedRun) -> None:
    gateway.control.close_run(run)


def close_campaign(gateway: GatewayProcess, run: OpenedRun) -> None:
    gateway.control.post(f"/v1/campaigns/{run.campaign}/close")


def revoke(gateway: GatewayProcess, run: OpenedRun) -> None:
    for key in gateway.control.get(f"/v1/keys?campaign={run.campaign}&run={run.run}")["keys"]:
        gateway.control.post(f"/v1/keys/{key.get('key_id') or key['key']}/revoke")


def halt(gateway: GatewayProcess, run: OpenedRun) -> None:
    gateway.control.post(f"/v1/campaigns/{run.campaign}/halt")


def nothing(gateway: GatewayProcess, run: OpenedRun) -> None:
    pass


CASES: dict[str, tuple[str, Callable[[GatewayProcess, OpenedRun], None], Told]] = {
    "a used-up limit": ("spent", spend, Told("run_budget_reached", 404, "run.requests")),
    "a used-up limit, told without numbers": ("silent", spend, Told("run_budget_reached", 404, "run.requests", numbers=False)),
    "a used-up limit, with the policy's status": ("other-status", spend, Told("run_budget_reached", 402, "run.requests")),
    "a prompt above its cap": ("prompt", nothing, Told("prompt_above_cap", 404, "call.prompt_tokens")),
    "a prompt above its cap, with the policy's status": ("prompt-402", nothing, Told("prompt_above_cap", 402, "call.prompt_tokens")),
    "a closed run": ("spent", close, Told("run_closed", 404)),
    "a closed run, with the policy's status": ("other-status", close, Told("run_closed", 402)),
    "a closed campaign": ("spent", close_campaign, Told("run_closed", 404)),
    "a revoked key": ("spent", revoke, Told("run_closed", 404)),
    "a halted campaign": ("no-wait", halt, Told("campaign_halted", 429, retries=True)),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_each_refusal_has_its_status_code_words_and_headers(gateway: GatewayProcess, mock: MockProcess, name: str, stream: bool) -> None:
    policy, prepare, told = CASES[name]
    run = gateway.opened(f"{policy}-{list(CASES).index(name)}-{int(stream)}", "r1", policy=policy)
    prepare(gateway, run)
    mock.clear()
    answer = chat_once(gateway.port, run.key, stream=stream, max_tokens=3)
    assert is_told(answer, told)
    assert mock.calls() == []


def is_told(answer: RawAnswer, told: Told) -> bool:
    error, headers = answer.json()["error"], answer.headers
    assert (answer.status, error["code"], headers["content-type"].partition(";")[0]) == (told.status, told.code, "application/json")
    assert headers["x-request-id"] == headers["request-id"]
    assert headers.get("x-gateway-limit") == told.limit
    assert headers.keys() & NUMBERS == (NUMBERS if told.limit and told.numbers else set())
    assert not headers.keys() & (LEFT | {"x-gateway-clamped", "x-gateway-resets-at"})
    if told.retries:
        assert headers["retry-after"] == "2" and "x-should-retry" not in headers
    else:
        assert headers["x-should-retry"] == "false" and "retry-after" not in headers
        assert is_final_wording(error["message"]) and is_final_wording(answer.body.decode())
    return True


def test_a_final_refusal_is_cheap_no_body_is_looked_at(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("cheap", "r1", policy="spent")
    gateway.control.close_run(run)
    mock.clear()
    for body in (b"", b"{", b"[" * 100_000, b'{"model":"none"}'):
        (answer,) = talk(gateway.port, request("POST", CHAT, {"x-api-key": run.key}, body, close=True)).answers
        assert is_told(answer, Told("run_closed", 404))
    (answer,) = talk(gateway.port, request("GET", "/v1/models", {"x-api-key": run.key}, close=True)).answers
    assert is_told(answer, Told("run_closed", 404))
    assert mock.log() == [] or not [record for record in mock.log() if record["method"] == "POST"]


@pytest.mark.parametrize(("policy", "numbers"), [("context", True), ("prompt-overflow", True), ("context-silent", False)])
def test_a_prompt_above_the_context_gets_the_engines_own_form(gateway: GatewayProcess, mock: MockProcess, policy: str, numbers: bool) -> None:
    run = gateway.opened(f"c-{policy}", "r1", policy=policy)
    mock.clear()
    answer = chat_once(gateway.port, run.key, max_tokens=3)
    error = answer.json()["error"]
    assert (answer.status, error["type"]) == (400, "exceed_context_size_error")
    assert ("n_ctx" in error, "n_prompt_tokens" in error) == (numbers, numbers)
    assert any(sign.isdigit() for sign in error["message"]) == numbers
    assert answer.headers.keys() & NUMBERS == (NUMBERS if numbers else set())
    assert mock.calls() == []


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_tells_what_was_left_before_it(gateway: GatewayProcess, stream: bool) -> None:
    run = gateway.opened(f"left-{int(stream)}", "r1", policy="spent")
    answer = chat_once(gateway.port, run.key, stream=stream, max_tokens=3)
    assert {name: answer.headers[name] for name in LEFT} == {
        "x-gateway-left-requests": "1", "x-gateway-left-input": "1000", "x-gateway-left-output": "1000",
    }  # fmt: skip
    assert "x-gateway-clamped" not in answer.headers and "x-gateway-limit" not in answer.headers


def test_a_clamp_is_told_with_its_limit(gateway: GatewayProcess) -> None:
    run = gateway.opened("clamped", "r1", policy="clamped")
    answers = [chat_once(gateway.port, run.key, max_tokens=5) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert "x-gateway-clamped" not in answers[0].headers
    assert answers[1].headers["x-gateway-clamped"] == "3 run.output_tokens"
    assert [answer.headers["x-gateway-left-output"] for answer in answers] == ["8", "3"]


def test_an_agent_that_may_not_see_its_limits_sees_none_on_answers(gateway: GatewayProcess) -> None:
    run = gateway.opened("clamped-silent", "r1", policy="clamped-silent")
    for _ in range(2):
        answer = chat_once(gateway.port, run.key, max_tokens=5)
        assert answer.status == 200
        assert {name for name in answer.headers if name.startswith("x-gateway-")} <= {"x-gateway-waited-ms"}


def test_the_guards_codes_keep_their_status_whatever_the_policy_says(gateway: GatewayProcess) -> None:
    run = gateway.opened("guard", "r1", policy="other-status")
    assert is_told(chat_once(gateway.port, run.key, store=True), Told("not_allowed", 400))
    assert is_told(chat_once(gateway.port, run.key, model="none"), Told("model_not_found", 404))
    deep: object = 1
    for _ in range(100):
        deep = [deep]
    assert is_told(chat_once(gateway.port, run.key, metadata=deep), Told("body_too_large", 400))


def is_unavailable(answer: RawAnswer, code: str) -> bool:
    assert (answer.status, answer.json()["error"]["code"]) == (503, code), answer
    assert "x-should-retry" not in answer.headers
    assert answer.headers["x-request-id"] == answer.headers["request-id"]
    return True


def test_an_engine_that_cannot_be_asked_to_count_is_unavailable(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script({"helper_status": 500})
    gateway = gateways(mock_process.url, policy={"run": {"input_tokens": 1_000}})
    assert is_unavailable(chat_once(gateway.port, gateway.opened().key), "engine_unavailable")
    assert mock_process.calls() == []


EARLIER = """
import runpy, sys, time
real = time.time_ns
time.time_ns = lambda: real() + 3_600_000_000_000
sys.argv = ["gateway", *sys.argv[4:]]
runpy.run_module("gateway", run_name="__main__")
"""
"""In front of the command `python -m gateway serve …`: the same with a clock that is an hour ahead."""


def test_a_clock_in_doubt_admits_nothing_until_a_person_accepts_it(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    gateway = gateways(mock_process.url, wrap=[sys.executable, "-c", EARLIER])
    key = gateway.opened().key
    assert gateway.stop() == 0
    gateway.wrap = []
    gateway.start()
    mock_process.clear()
    for stream in (False, True):
        assert is_unavailable(chat_once(gateway.port, key, stream=stream), "clock")
    assert mock_process.calls() == []
    gateway.control.post("/v1/ledger/clock/accept", {"reason": "looked at it"})
    assert chat_once(gateway.port, key).status == 200


def test_a_connection_too_many_is_told_so_with_its_ids_and_closed(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    gateway = gateways(mock_process.url, settings={"bounds": {"max_connections": 3}})
    run = gateway.opened()
    models = request("GET", "/v1/models", {"x-api-key": run.key})
    held = [Wire(gateway.port) for _ in range(3)]
    try:
        for wire in held:
            wire.send(models)
            assert wire.answer().status == 200
        with Wire(gateway.port) as wire:
            wire.send(models)
            assert is_unavailable(wire.answer(), "overloaded")
            assert wire.is_closed()
        held[0].send(models)
        assert held[0].answer().status == 200
    finally:
        for wire in held:
            wire.__exit__()
    assert gateway.control.metric("gateway_refusals_total", code="overloaded") == 1
