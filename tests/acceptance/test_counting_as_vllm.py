"""Prompts counted by vLLM's and SGLang's own endpoints, through the whole gateway: what is reserved is what the server reports.

The server here is a small one that speaks their forms (tests/support/tokenizing_engine.py): neither of the two runs without a graphics card.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.control import ControlAnswered
from tests.support.gateway_process import GatewayProcess
from tests.support.raw_http import RawAnswer, RawClient
from tests.support.record import calls
from tests.support.tokenizing_engine import TokenizingEngine

APIS = ["openai.chat", "openai.completions", "openai.embeddings", "anthropic.messages"]
FAR = 100_000
"""More output than the context leaves, so that each call is counted before it is decided."""
MODEL: Any = {"default_output_tokens": 8, "context_tokens": 3_000}
TOOL: Any = {"type": "function", "function": {"name": "look", "description": 'Looks "up" 漢', "parameters": {"type": "object", "properties": {}}}}
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello <|im_end|> 漢"}], "max_tokens": FAR}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], "tools": [TOOL], "reasoning_effort": "low", "max_tokens": FAR}),
    ("/v1/completions", {"prompt": "Once upon a time", "max_tokens": FAR}),
    ("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": FAR}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "hello"}], "system": "Be kind", "max_tokens": FAR}),
    ("/v1/embeddings", {"input": ["one", "two 漢"]}),
]


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def engine(request: pytest.FixtureRequest) -> Iterator[TokenizingEngine]:
    with TokenizingEngine(request.param) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(engine: TokenizingEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    plain: Any = {"apis": APIS, "models": {"public": MODEL}}
    policies: Any = {
        "counted": plain,
        "exact": {**plain, "run": {"input_tokens": 350}},
        "responses": {**plain, "apis": ["openai.responses"]},
        "responses-estimated": {**plain, "apis": ["openai.responses"], "models": {"public": {**MODEL, "counter": "tiktoken:o200k_base"}}},
    }
    folder: Path = tmp_path_factory.mktemp("counted")
    models = {"public": engine.model, "mock": engine.model}
    with GatewayProcess(folder, engine.url, policies=policies, engine=engine.kind, models=models) as process:
        yield process


def ask(gateway: GatewayProcess, key: str, path: str, body: dict[str, Any]) -> RawAnswer:
    with RawClient(gateway.port) as client:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        client.request("POST", path, headers=headers, body=json.dumps({"model": "public", **body}).encode())
        return client.answer()


def test_reserved_input_is_reported_input_in_every_format_that_it_counts(gateway: GatewayProcess) -> None:
    run = gateway.opened("counted", "r1", policy="counted")
    for path, body in BODIES:
        answer = ask(gateway, run.key, path, body)
        assert answer.status == 200, (answer.body, gateway.process.output[-1500:])
    rows = [row for row in calls(gateway) if row["campaign"] == "counted"]
    assert len(rows) == len(BODIES)
    generated = rows[:-1]  # an embedding fits by its bound and need not be counted
    assert [row["reserved_input_tokens"] for row in generated] == [row["input_tokens"] for row in generated]
    assert {(row["source"], row["flags"]) for row in rows} == {("reported", None)}


def test_a_prompt_cap_is_spent_to_the_token(gateway: GatewayProcess) -> None:
    run = gateway.opened("exact", "r1", policy="exact")
    asked, spent = 0, 0
    while (answer := ask(gateway, run.key, "/v1/embeddings", {"input": ["ninety-nine bytes " * 5 + "x" * 9]})).status == 200:
        asked += 1
        spent += answer.json()["usage"]["prompt_tokens"]
    assert (answer.status, answer.headers["x-gateway-limit"], answer.headers["x-gateway-asked"]) == (404, "run.input_tokens", "100")
    assert (asked, spent) == (3, 300)


def test_a_format_whose_prompts_it_can_t_count_is_refused_when_the_campaign_is_opened(gateway: GatewayProcess) -> None:
    with pytest.raises(ControlAnswered, match=r"count prompts of openai\.responses; write"):
        gateway.control.open_campaign("responses", "responses")
    gateway.control.open_campaign("estimated", "responses-estimated")
