"""The log of a real gateway: one line a call, JSON or text, with what stands in the ledger of it and nothing of what was said or who may say it."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import httpx
import pytest

from tests.conftest import GatewayMaker
from tests.support.mock_process import MockProcess

PROMPT, ANSWER, FIELD, HEADER, TOOL = "quibble-prompt", "quibble-answer", "quibble-field", "quibble-header", "quibble_tool"
TOKEN = "quibble-token-" + "t" * 30
CREDENTIAL = "quibble-credential"
POLICY = {"run": {"requests": 4}, "models": {"mock": {"counter": "bytes", "default_output_tokens": 40}}}
ENVIRONMENT = {"CONTROL_TOKEN": TOKEN, "ENGINE_KEY": CREDENTIAL}
SETTINGS = {"control": {"listen": "127.0.0.1:0", "token_env": "CONTROL_TOKEN"}, "upstreams": {"engine": {"credential_env": "ENGINE_KEY"}}}


def calls(address: str, key: str) -> list[httpx.Response]:
    """Four that are sent, whole, streamed, left early and failed by the engine; three that are refused, and one without a key."""
    tool = {"type": "function", "function": {"name": TOOL, "description": PROMPT, "parameters": {"type": "object", "properties": {FIELD: {"type": "string"}}}}}
    body: dict[str, Any] = {"model": "mock", "messages": [{"role": "user", "content": PROMPT}], "tools": [tool]}
    with httpx.Client(base_url=address, timeout=30, trust_env=False, headers={"Authorization": f"Bearer {key}", "X-Session": HEADER}) as client:
        path = "/v1/chat/completions"
        answers = [client.post(path, json=body), client.post(path, json={**body, "stream": True})]
        with client.stream("POST", path, json={**body, "stream": True, "max_tokens": 30}) as left:
            next(left.iter_raw())
        answers += [left, client.post(path, json={**body, "model": "mock"})]
        answers += [client.post(path, json=body), client.post(path, json={**body, FIELD: PROMPT}), client.post(path, content=PROMPT.encode())]
        answers += [client.post(path, json=body, headers={"Authorization": f"Bearer {HEADER}"})]
    return answers


def logged(gateways: GatewayMaker, form: str) -> tuple[list[str], dict[str, str], list[httpx.Response], Any]:
    """The lines, the run's secrets, the answers, and what the ledger says."""
    scripts = [{"text": ANSWER * 4}, {"text": ANSWER * 4}, {"text": ANSWER * 40, "gap_ms": 60}, {"die": "500", "text": ANSWER}]
    with MockProcess() as mock:
        mock.queue(*scripts)
        gateway = gateways(mock.url, policy=POLICY, settings=SETTINGS, env={**ENVIRONMENT, "GATEWAY_LOG": form})
        run = gateway.opened("pilot", "r1")
        answers = calls(gateway.address, run.key)
        gateway.control.close_run(run, {"exit": 0})
        told = gateway.control.get("/v1/campaigns/pilot/runs/r1/history")
        assert gateway.stop() == 0
        return gateway.process.output.splitlines(), run.keys, answers, told


def test_each_call_has_one_line_that_says_what_its_ledger_says(gateways: GatewayMaker) -> None:
    lines, _, answers, told = logged(gateways, "json")
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    assert len(rows) == len(lines) - 1, "all but the line that says ready"
    ends = {row["call"]: row for row in rows if row["message"] in ("settled", "voided", "refused")}
    assert Counter(row["call"] for row in rows if row["message"] in ("settled", "voided", "refused")).most_common(1)[0][1] == 1
    assert set(ends) >= {answer.headers["x-request-id"] for answer in answers[:-1]}
    for call in told["calls"]:
        row = ends[call["call"]]
        assert (row["run"], row["lane"], row["model"], row["upstream"]) == ("pilot/r1", "foreground", "mock", "engine")
        assert (row["outcome"], row["source"], row["ceiling"]) == (call["outcome"], call["source"], call["ceiling"])
        assert {name: row.get(name) for name in ("input_tokens", "output_tokens")} == {
            name: call["usage"].get(name) for name in ("input_tokens", "output_tokens")
        }
        assert (row["charged_input"], row["charged_output"]) == (call["charge"]["input_tokens"], call["charge"]["output_tokens"])
        assert row["end_ms"] == call["took_ms"] and row.get("first_byte_ms") == call.get("first_byte_ms")
    assert {row["message"] for row in ends.values()} == {"settled", "refused"} and len(told["calls"]) == 4
    over = ends[answers[4].headers["x-request-id"]]
    assert (over["code"], over["limit"], over["limit_settled"], over["final"]) == ("run_budget_reached", "run.requests", 4, True)


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_line_holds_a_secret_or_a_word_of_what_was_said(gateways: GatewayMaker, form: str) -> None:
    lines, keys, answers, _ = logged(gateways, form)
    assert sum(bool(re.search(r"\bsettled\b", line)) for line in lines) == 4 and ANSWER in answers[0].text
    for secret in (*keys.values(), TOKEN, CREDENTIAL, PROMPT, ANSWER, FIELD, HEADER, TOOL):
        assert not [line for line in lines if secret in line], secret


def test_who_wants_no_line_a_call_says_so(gateways: GatewayMaker) -> None:
    with MockProcess() as mock:
        gateway = gateways(mock.url, env={"GATEWAY_LOG": "json", "GATEWAY_LOG_LEVEL": "warning"})
        run = gateway.opened("pilot", "r1")
        with httpx.Client(base_url=gateway.address, trust_env=False, headers={"Authorization": f"Bearer {run.key}"}) as client:
            assert client.post("/v1/chat/completions", json={"model": "mock", "messages": []}).status_code < 500
        assert gateway.stop() == 0
        assert not [line for line in gateway.process.output.splitlines() if '"info"' in line]
