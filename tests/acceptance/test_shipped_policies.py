"""The shipped set-ups, each driven by a scripted engine to each of its limits but those of the clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.ledger.reading import LedgerReader
from tests.support.control import ControlAnswered, OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, chat_once

ROOT = Path(__file__).parents[2]
STUDENT, TEACHER = "qwen3.6:35b", "large"
CONTEXT = 262_144
"""The engine's own: more than the policies allow."""


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess(script={"context_tokens": CONTEXT}) as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    process = GatewayProcess(tmp_path_factory.mktemp("shipped"), mock.url, models={STUDENT: "s", TEACHER: "t", "mock": "mock"}, slots=8)
    for name in ("pilot", "production", "tuning"):
        (process.folder / "policies" / f"{name}.toml").write_text((ROOT / "policies" / f"{name}.toml").read_text())
    with process:
        yield process


def says(mock: MockProcess, script: dict[str, int]) -> None:
    mock.script({"context_tokens": CONTEXT, "default": script})


def call(gateway: GatewayProcess, key: str, model: str = STUDENT, **body: Any) -> RawAnswer:
    return chat_once(gateway.port, key, model=model, **body)


def last_sent(mock: MockProcess) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(mock.calls()[-1]["body"]) if isinstance(mock.calls()[-1]["body"], str) else mock.calls()[-1]["body"]
    return body


def refused(answer: RawAnswer) -> tuple[int, str, str]:
    return answer.status, answer.json()["error"]["code"], answer.headers.get("x-gateway-limit", "")


def calls_until_refused(gateway: GatewayProcess, key: str, most: int, **body: Any) -> tuple[int, RawAnswer]:
    for number in range(most + 1):
        answer = call(gateway, key, **body)
        if answer.status != 200:
            return number, answer
    raise AssertionError(f"{most + 1} calls were answered")


def declined(gateway: GatewayProcess, campaign: str, **more: Any) -> ControlAnswered:
    with pytest.raises(ControlAnswered) as caught:
        gateway.control.open_run(campaign, None, **more)
    return caught.value


def test_pilot(gateway: GatewayProcess, mock: MockProcess) -> None:
    says(mock, {"output_tokens": 2})
    runs = [gateway.opened("pilot", f"r{number}", policy="pilot") for number in range(3)]
    for run in runs[:2]:
        number, answer = calls_until_refused(gateway, run.keys["foreground"], 50)
        assert (number, refused(answer)) == (50, (404, "run_budget_reached", "run.foreground.requests"))
    assert last_sent(mock)["max_tokens"] == 8_192
    number, answer = calls_until_refused(gateway, runs[0].keys["background"], 30)
    assert (number, refused(answer)) == (30, (404, "run_budget_reached", "campaign.background.day.requests"))
    assert answer.headers["x-gateway-resets-at"].endswith("T16:00:00Z"), "midnight in Shanghai"
    number, answer = calls_until_refused(gateway, runs[2].keys["foreground"], 10)
    assert (number, refused(answer)) == (10, (404, "run_budget_reached", "campaign.requests"))
    assert declined(gateway, "pilot").status == 409, "no run is opened that cannot be carried to its end"


def test_production(gateway: GatewayProcess, mock: MockProcess) -> None:
    says(mock, {"output_tokens": 2})
    run = gateway.opened("production", "r0", policy="production", task="t0", label="production")
    long = [{"role": "user", "content": "word " * 7_600}]
    answer = call(gateway, run.keys["student"], messages=long)
    assert refused(answer) == (404, "prompt_above_cap", "call.student.prompt_tokens")
    assert call(gateway, run.keys["teacher"], TEACHER, messages=long).status == 200
    assert call(gateway, run.keys["student"], TEACHER).status == 404, "the student has no other model"
    number, answer = calls_until_refused(gateway, run.keys["student"], 59)
    assert (number, refused(answer)) == (59, (404, "run_budget_reached", "run.requests"))
    assert declined(gateway, "production", task="t0").status == 409
    generating = gateway.opened("production", "r1", policy="production", task="t1", label="engineering")
    says(mock, {"output_tokens": 8_192})
    number, answer = calls_until_refused(gateway, generating.keys["teacher"], 8, model=TEACHER)
    assert (number, refused(answer)) == (8, (404, "run_budget_reached", "run.output_tokens"))
    for attempt in range(2, 20):
        gateway.control.open_run("production", f"r{attempt}", task=f"t{attempt}")
    told = declined(gateway, "production", task="t20")
    assert told.status == 409 and "campaign.runs" in json.dumps(told.body), "also those that never called are counted"


def test_tuning(gateway: GatewayProcess, mock: MockProcess) -> None:
    says(mock, {"tool_calls": 40})
    run: OpenedRun = gateway.opened("tuning", "r0", policy="tuning")
    asked: dict[str, Any] = {"temperature": 1.5, "chat_template_kwargs": {"enable_thinking": False, "other": 1}, "max_tokens": 50_000, "seed": None}
    assert call(gateway, run.keys["foreground"], **asked).status == 200
    sent = last_sent(mock)
    assert (sent["temperature"], sent["top_p"], sent["reasoning_effort"], sent["seed"]) == (0.6, 0.95, "medium", 7)
    assert sent["chat_template_kwargs"] == {"enable_thinking": True, "reasoning_effort": "medium", "other": 1}
    assert sent["max_tokens"] <= 32_768
    details = record_of(gateway, "tuning")
    assert details["settings_asked"]["temperature"] == "1.5" and "top_p" not in details["settings_asked"]
    assert (details["settings_sent"]["temperature"], details["settings_sent"]["top_p"]) == ("0.6", "0.95")
    answer = call(gateway, run.keys["foreground"], logit_bias={"5": 1})
    assert answer.status == 400 and answer.json()["error"]["code"] == "not_allowed"
    assert "logit_bias" in answer.json()["error"]["message"] and "body.forbid" in answer.json()["error"]["message"]
    number, answer = calls_until_refused(gateway, run.keys["foreground"], 2)
    assert (number, refused(answer)) == (2, (404, "run_budget_reached", "run.tool_calls"))
    assert (answer.headers["x-gateway-ceiling"], answer.headers["x-gateway-settled"]) == ("120", "120")


def test_tuning_s_tokens(gateway: GatewayProcess, mock: MockProcess) -> None:
    says(mock, {"output_tokens": 32_768})
    run = gateway.opened("tuning-tokens", "r0", policy="tuning")
    long = [{"role": "user", "content": "word " * 60_000}]
    whole = calls_of_context(gateway, run, long)
    assert whole == 131_072, "prompt and ceiling together"
    above = call(gateway, run.keys["foreground"], messages=[{"role": "user", "content": "word " * 65_600}])
    assert refused(above) == (404, "prompt_above_cap", "call.context_tokens")
    other = gateway.opened("tuning-tokens", "r1", policy="tuning")
    number, answer = calls_until_refused(gateway, other.keys["foreground"], 2)
    assert (number, refused(answer)) == (2, (404, "run_budget_reached", "run.output_tokens"))


def calls_of_context(gateway: GatewayProcess, run: OpenedRun, messages: list[dict[str, str]]) -> int:
    assert call(gateway, run.keys["foreground"], messages=messages).status == 200
    with LedgerReader(gateway.ledger) as reader:
        row = reader.calls(campaign=run.campaign)[-1]
    assert row["ceiling_from"] == "call.context_tokens"
    return int(str(row["input_tokens"])) + int(str(row["ceiling"]))


def record_of(gateway: GatewayProcess, campaign: str) -> dict[str, Any]:
    with LedgerReader(gateway.ledger) as reader:
        body = reader.query(
            "SELECT body FROM journal WHERE kind = 'reserve' AND json_extract(body, '$.campaign') = :campaign ORDER BY number", campaign=campaign
        )
    details: dict[str, Any] = json.loads(str(body[0]["body"]))["details"]
    return details
