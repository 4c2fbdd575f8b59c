"""Embeddings and rerank on a real llama.cpp that pools: input alone, counted as the engine counts it, and charged as it reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gateway.demo.engine import EngineSpec, RealEngine
from gateway.demo.tiny_model import tiny_model
from gateway.ledger.reading import LedgerReader
from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.sdk import openai_client

MEAN, RANK = 1, 4
INPUTS: Any = ["hello", "hello there, 漢字 " * 5, "a"]


def pooled(folder: Path, pooling: int) -> RealEngine:
    return RealEngine(EngineSpec(model=tiny_model(folder), alias="tiny", context_tokens=512, slots=2, pooling=pooling))


def gateway_of(folder: Path, engine: RealEngine) -> GatewayProcess:
    plain: Any = {"apis": ["openai.embeddings", "rerank", "llamacpp.embedding"], "models": {"real": {"default_output_tokens": 5}}}
    policies = {
        "free": plain,
        "input": {**plain, "run": {"input_tokens": 300}},
        "no-output": {**plain, "run": {"output_tokens": 0}},
    }
    return GatewayProcess(folder, engine.address, policies=policies, models={"real": "tiny", "mock": "tiny"}, slots=2)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    with pooled(tmp_path_factory.mktemp("model"), MEAN) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(engine: RealEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with gateway_of(tmp_path_factory.mktemp("embeddings"), engine) as process:
        yield process


def rows_of(gateway: GatewayProcess, run: OpenedRun) -> list[Any]:
    with LedgerReader(gateway.ledger) as reader:
        return list(reader.calls(campaign=run.campaign, run=run.run))


def ask(gateway: GatewayProcess, run: OpenedRun, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{gateway.address}{path}", json=body, headers={"authorization": f"Bearer {run.key}"}, timeout=60, trust_env=False)


def test_embeddings_are_charged_as_the_engine_reports_and_no_output_is_held(gateway: GatewayProcess) -> None:
    run = gateway.opened("embeddings", "r1", policy="no-output")
    client = openai_client(gateway.address, run.key)
    told = [
        client.embeddings.create(model="real", input=given, encoding_format=form).usage
        for given in ("hello", INPUTS, [5, 6, 7])
        for form in ("float", "base64")
    ]
    rows = rows_of(gateway, run)
    assert [(row["input_tokens"], row["output_tokens"]) for row in rows] == [(usage.prompt_tokens, 0) for usage in told]
    assert {(row["outcome"], row["source"], row["reserved_output_tokens"], row["charged_output_tokens"]) for row in rows} == {("completed", "reported", 0, 0)}
    assert all(row["reserved_input_tokens"] >= row["input_tokens"] for row in rows)


def test_an_input_cap_is_spent_by_the_engines_own_count(gateway: GatewayProcess) -> None:
    run = gateway.opened("capped", "r1", policy="input")
    client = openai_client(gateway.address, run.key)
    with pytest.raises(openai.NotFoundError) as refused:
        for _ in range(50):
            client.embeddings.create(model="real", input=INPUTS, encoding_format="float")
    rows = rows_of(gateway, run)
    each = rows[0]["input_tokens"]
    assert len(rows) == 300 // each
    headers = refused.value.response.headers
    assert (headers["x-gateway-limit"], int(headers["x-gateway-asked"])) == ("run.input_tokens", each)
    assert "count_drift" not in str([row["flags"] for row in rows])


def test_the_native_form_without_usage_is_counted(gateway: GatewayProcess) -> None:
    run = gateway.opened("native", "r1", policy="free")
    answer = ask(gateway, run, "/embedding", content="hello there")
    assert answer.status_code == 200, answer.text
    [row] = rows_of(gateway, run)
    assert (row["source"], row["counted_by"], row["output_tokens"], row["charged_output_tokens"]) == ("counted", "engine", 0, 0)
    expected = ask(gateway, gateway.opened("native", "r2", policy="free"), "/v1/embeddings", model="real", input="hello there").json()["usage"]
    assert row["input_tokens"] == row["charged_input_tokens"] == expected["prompt_tokens"]


def test_a_rerank_is_charged_as_the_engine_reports_the_query_once_for_each_document(tmp_path: Path) -> None:
    with pooled(tmp_path, RANK) as engine, gateway_of(tmp_path / "gateway", engine) as gateway:
        for policy in ("free", "input"):
            run = gateway.opened(f"rerank-{policy}", "r1", policy=policy)
            told = []
            for documents in (["a", "some more words"], ["漢字"]):
                answer = ask(gateway, run, "/v1/rerank", model="real", query="hello", documents=documents)
                assert answer.status_code == 200, answer.text
                told.append(answer.json()["usage"]["prompt_tokens"])
            rows = rows_of(gateway, run)
            assert [(row["input_tokens"], row["output_tokens"], row["source"], row["outcome"]) for row in rows] == [
                (tokens, 0, "reported", "completed") for tokens in told
            ]
            assert told[0] > len("hello") * 2
            assert all(row["reserved_input_tokens"] >= row["input_tokens"] for row in rows)
        spend_by_the_engines_own_count(gateway)


def spend_by_the_engines_own_count(gateway: GatewayProcess) -> None:
    run = gateway.opened("rerank-spent", "r1", policy="input")
    body: Any = {"model": "real", "query": "hello <|im_start|>", "documents": ["a", "some <|im_end|> words"]}
    answer = next(answer for _ in range(300) if (answer := ask(gateway, run, "/v1/rerank", **body)).status_code != 200)
    rows = rows_of(gateway, run)
    each = rows[0]["input_tokens"]
    assert len(rows) == 300 // each
    assert (answer.headers["x-gateway-limit"], int(answer.headers["x-gateway-asked"])) == ("run.input_tokens", each)
    assert "count_drift" not in str([row["flags"] for row in rows])
