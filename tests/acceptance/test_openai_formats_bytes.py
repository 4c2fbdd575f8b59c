"""Answers of completions, Responses, embeddings and rerank through `gateway serve`: bytes, ledger, cuts and leavers.

What holds for chat holds here: the engine's bytes come out, the terminal event after the settlement, a cut ends as the format's own error.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gateway.ledger.reading import LedgerReader
from tests.support.cases import Case, cases
from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawClient
from tests.support.waiting import eventually

PATHS = {"openai.completions": "/v1/completions", "openai.responses": "/v1/responses", "openai.embeddings": "/v1/embeddings", "rerank": "/v1/rerank"}
CASES = [case for dialect in PATHS for case in cases(dialect)]
STREAMS = [case for case in CASES if case.expected["completed"] and case.headers["content-type"] != "application/json"]
OF_FORMAT = {case.dialect: case for case in STREAMS}
"""One good stream of each format."""


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    local = {"default_output_tokens": 64, "counter": "tiktoken:o200k_base"}
    upstreams = {kind: {"address": mock.url, "engine": kind, "slots": 4, "models": {kind: "mock"}} for kind in ("generic", "vllm")}
    models: Any = {"llama.cpp": {"default_output_tokens": 64}, "generic": local, "vllm": local}
    policy: Any = {"apis": list(PATHS), "models": models}
    short: Any = {**policy, "models": {name: {**model, "default_output_tokens": 2} for name, model in models.items()}, "call": {"output_tokens": 2}}
    names = {"llama.cpp": "mock", "mock": "mock"}
    folder = tmp_path_factory.mktemp("formats")
    with GatewayProcess(folder, mock.url, policy=policy, policies={"short": short}, models=names, settings={"upstreams": upstreams}) as process:
        yield process


@pytest.fixture(scope="module")
def run(gateway: GatewayProcess) -> OpenedRun:
    return gateway.opened("formats", "r1")


def sent(gateway: GatewayProcess, case: Case, key: str) -> RawClient:
    model = case.upstream if case.upstream in ("llama.cpp", "vllm") else "generic"
    client = RawClient(gateway.port)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    client.request("POST", PATHS[case.dialect], headers=headers, body=json.dumps({**case.body, "model": model}).encode())
    return client


def row_of(gateway: GatewayProcess, call_id: str) -> dict[str, Any]:
    with LedgerReader(gateway.ledger) as reader:
        return next(dict(row) for row in reader.calls() if row["call_id"] == call_id)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("cuts", ["whole", "bytes", "random"])
def test_an_answer_comes_out_as_it_came_in_and_is_on_record(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, case: Case, cuts: str) -> None:
    where = {"whole": (), "bytes": case.byte_by_byte(), "random": case.random_cuts(7)}[cuts]
    mock.script(case.script_json(where))
    with sent(gateway, case, run.key) as client:
        answer = client.answer()
    expected = case.expected
    row = row_of(gateway, answer.headers["x-request-id"])
    if expected["error_class"] == "error_in_200":
        assert (answer.status, row["outcome"]) == (502, "engine_error")
        assert "Unexpected endpoint" in answer.body.decode()
        return
    assert (answer.status, answer.body) == (case.status, case.answer)
    if expected["usage_source"] == "reported":
        told = ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens")
        assert [row["source"], *(row[name.replace("cached_input", "cached")] for name in told)] == ["reported", *(expected[name] for name in told)]
    elif expected["completed"]:
        assert (row["source"], row["output_tokens"], row["counted_by"]) == ("counted", 0, "tiktoken:o200k_base")
    assert row["outcome"] == ("engine_error" if expected["error_class"] else "length" if reached(expected, row["reserved_output_tokens"]) else "completed")


def reached(expected: dict[str, Any], ceiling: int) -> bool:
    """Whatever word the engine used."""
    return expected["finish_reason"] in ("length", "max_output_tokens") or 0 < ceiling <= (expected["output_tokens"] or 0)


@pytest.mark.parametrize("dialect", OF_FORMAT)
def test_the_terminal_event_comes_after_the_settlement(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, dialect: str) -> None:
    case = OF_FORMAT[dialect]
    mock.script({**case.script_json(), "gap_ms": 5})
    with sent(gateway, case, run.key) as client:
        answer = client.answer()
        ended_ns = client.got[-1].unix_ns
    assert row_of(gateway, answer.headers["x-request-id"])["ended_ms"] * 1_000_000 <= ended_ns


def halves(case: Case) -> tuple[int, ...]:
    """Cut before the last event: what follows waits."""
    return (case.answer.rstrip(b"\n").rindex(b"\n\n") + 2,)


@pytest.mark.parametrize("dialect", OF_FORMAT)
def test_a_stream_that_is_cut_ends_as_the_formats_own_error(gateway: GatewayProcess, mock: MockProcess, dialect: str) -> None:
    case = OF_FORMAT[dialect]
    run, where = gateway.opened("cut", dialect.partition(".")[2]), halves(case)
    mock.script({**case.script_json(where), "gap_ms": 5_000})
    with sent(gateway, case, run.key) as client:
        client.read_until(case.answer[: where[0]][-20:])
        gateway.control.close_run(run)
        answer = client.answer()
    assert answer.body.startswith(case.answer[: where[0]])
    assert row_of(gateway, answer.headers["x-request-id"])["outcome"] == "closed_cut"
    ending = answer.body[where[0] :].decode()
    events = [json.loads(line.removeprefix("data: ")) for line in ending.splitlines() if line.startswith("data: {")]
    if dialect == "openai.responses":
        assert ending.startswith("event: response.failed\n") and len(events) == 1
        assert (events[0]["type"], events[0]["response"]["status"]) == ("response.failed", "failed")
        assert events[0]["response"]["error"]["code"] == "insufficient_quota"
    else:
        assert events[0]["error"]["code"] == "run_closed" and ending.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("dialect", OF_FORMAT)
def test_an_engine_that_dies_is_told_as_the_formats_error_and_not_as_a_cut(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, dialect: str) -> None:
    whole = OF_FORMAT[dialect]
    case = replace(whole, answer=whole.answer.partition(b"\n\n")[0] + b"\n\n")
    mock.script(case.script_json())
    with sent(gateway, case, run.key) as client:
        answer = client.answer()
    assert answer.body.startswith(case.answer)
    assert row_of(gateway, answer.headers["x-request-id"])["outcome"] == "engine_died"
    [told] = [json.loads(line[6:]) for line in answer.body[len(case.answer) :].decode().splitlines() if line.startswith("data: {")]
    assert "engine_died" in (told.get("code"), told.get("error", {}).get("code"))
    assert (told.get("type") == "error") is (dialect == "openai.responses")


@pytest.mark.parametrize("dialect", OF_FORMAT)
def test_a_stream_whose_client_leaves_is_cancelled(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, dialect: str) -> None:
    case = OF_FORMAT[dialect]
    where = halves(case)
    mock.script({**case.script_json(where), "gap_ms": 5_000})
    with sent(gateway, case, run.key) as client:
        client.read_until(case.answer[: where[0]][-20:])
        call_id = client.so_far().headers["x-request-id"]
        client.close()
    began = time.monotonic()
    eventually(lambda: row_of(gateway, call_id)["status"] == "settled", "it is settled")
    assert time.monotonic() - began < 4
    assert row_of(gateway, call_id)["outcome"] == "client_cancelled"


WORDS = ["Each ", "word ", "is ", "one ", "token "] * 8
CREATED: dict[str, Any] = {"type": "response.created", "response": {"id": "resp_1", "model": "m", "status": "in_progress"}}
ENDLESS: dict[str, list[dict[str, Any]]] = {
    "openai.completions": [{"id": "cmpl-1", "model": "m", "choices": [{"index": 0, "text": word, "finish_reason": None}]} for word in WORDS],
    "openai.responses": [CREATED, *({"type": "response.output_text.delta", "item_id": "msg_1", "delta": word} for word in WORDS)],
}
"""Engines that don't know a cap."""


@pytest.mark.parametrize("dialect", ENDLESS)
def test_an_engine_that_runs_past_its_cap_is_cut_with_the_formats_own_length_end(gateway: GatewayProcess, mock: MockProcess, dialect: str) -> None:
    body: dict[str, Any] = {
        "stream": True,
        **({"input": "hi"} if dialect == "openai.responses" else {"prompt": "hi", "stream_options": {"include_usage": True}}),
    }
    case = replace(OF_FORMAT[dialect], body=body, upstream="generic")
    run = gateway.opened("short", dialect.partition(".")[2], policy="short")
    mock.script({"raw": [f"data: {json.dumps(event)}\n\n" for event in ENDLESS[dialect]], "raw_type": "text/event-stream", "gap_ms": 40})
    with sent(gateway, case, run.key) as client:
        answer = client.answer()
    row = row_of(gateway, answer.headers["x-request-id"])
    assert (row["outcome"], row["source"]) == ("cap_cut", "counted")
    *_, last = [json.loads(line[6:]) for line in answer.body.decode().splitlines() if line.startswith("data: {")]
    if dialect == "openai.responses":
        response = last["response"]
        assert (last["type"], response["id"], response["status"]) == ("response.incomplete", "resp_1", "incomplete")
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert response["usage"] is None or response["usage"]["output_tokens"] == row["output_tokens"]
    else:
        assert b'"finish_reason":"length"' in answer.body and answer.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("status", [400, 404, 422, 429, 500, 503])
def test_an_engines_refusal_passes_with_its_status_and_costs_nothing_but_a_fault(
    gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, dialect: str, status: int
) -> None:
    case = next(case for case in CASES if case.dialect == dialect)
    mock.script({"raw": ['{"error":{"message":"at http://10.0.0.7:8080/x","code":"c"}}'], "raw_type": "application/json", "raw_status": status})
    with sent(gateway, case, run.key) as client:
        answer = client.answer()
    assert answer.status == status
    assert b"10.0.0.7" not in answer.body
    row = row_of(gateway, answer.headers["x-request-id"])
    refused = status != 500
    assert (row["outcome"], row["source"]) == (("engine_refused", "none") if refused else ("engine_error", "unknown"))
    assert (row["charged_input_tokens"] == 0) is refused and row["charged_output_tokens"] == 0
