"""What real servers answered, in every format but chat, through `gateway serve`: bytes, ledger, and the odd things that only one of them does.

What holds of each format alike is in test_every_format.py; chat's own answers are in test_bytes.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.conftest import GatewayMaker
from tests.support.cases import Case, cases
from tests.support.control import OpenedRun
from tests.support.every_format import World
from tests.support.formats import FORMATS
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawClient

OF_OPENAI = ("openai.completions", "openai.responses", "openai.embeddings", "rerank")
OF_OTHERS = ("anthropic.messages", "ollama.chat", "ollama.generate", "ollama.embed", "llamacpp.completion", "tgi.generate", "lmstudio.chat")
KINDS = {"ollama": "ollama", "llamacpp": "llama.cpp", "tgi": "generic", "lmstudio": "generic", "anthropic": "llama.cpp"}


def as_spoken(case: Case) -> Case:
    return replace(case, dialect="tgi.generate_stream") if case.name == "tgi-generate-stream" else case


CASES = [as_spoken(case) for dialect in (*OF_OPENAI, *OF_OTHERS) for case in cases(dialect)]
LINES = next(case for case in CASES if case.dialect == "ollama.chat" and case.expected["completed"] and case.headers["content-type"] != "application/json")


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    local = {"default_output_tokens": 64, "counter": "tiktoken:o200k_base"}
    upstreams = {kind: {"address": mock.url, "engine": kind, "slots": 4, "models": {kind: "mock"}} for kind in ("generic", "vllm", "ollama")}
    models: Any = {"llama.cpp": {"default_output_tokens": 64}, "generic": local, "vllm": local, "ollama": local}
    policy: Any = {"apis": sorted({case.dialect for case in CASES}), "models": models}
    names = {"llama.cpp": "mock", "mock": "mock"}
    folder = tmp_path_factory.mktemp("fixtures")
    with GatewayProcess(folder, mock.url, policy=policy, models=names, settings={"upstreams": upstreams}) as process:
        yield process


@pytest.fixture(scope="module")
def run(gateway: GatewayProcess) -> OpenedRun:
    return gateway.opened("fixtures", "r1")


def model_of(case: Case) -> str:
    if case.dialect in OF_OPENAI:
        return case.upstream if case.upstream in ("llama.cpp", "vllm") else "generic"
    return KINDS[case.dialect.partition(".")[0]]


def sent(gateway: GatewayProcess, case: Case, key: str) -> RawClient:
    client = RawClient(gateway.port)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    client.request("POST", FORMATS[case.dialect].path, headers=headers, body=json.dumps({**case.body, "model": model_of(case)}).encode())
    return client


def row_of(gateway: GatewayProcess, call_id: str) -> dict[str, Any]:
    return World(gateway, {}).row(call_id)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("cuts", ["whole", "bytes", "random"])
def test_an_answer_comes_out_as_it_came_in_and_is_on_record(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, case: Case, cuts: str) -> None:
    mock.script(case.script_json({"whole": (), "bytes": case.byte_by_byte(), "random": case.random_cuts(7)}[cuts]))
    with sent(gateway, case, run.key) as client:
        answer = client.answer()
    expected, row = case.expected, row_of(gateway, answer.headers["x-request-id"])
    if expected["error_class"] == "error_in_200":
        assert (answer.status, row["outcome"]) == (502, "engine_error")
        assert "Unexpected endpoint" in answer.body.decode()
        return
    assert answer.status == case.status, answer.body
    if expected["error_class"] == "truncated":
        assert answer.body.startswith(case.answer)
        assert b"engine_died" in answer.body[len(case.answer) :]
    else:
        assert answer.body == case.answer
    if expected["usage_source"] == "reported":
        told = ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens")
        assert [row["source"], *(row[name.replace("cached_input", "cached")] for name in told)] == ["reported", *(expected[name] for name in told)]
    elif expected["completed"]:
        assert row["source"] == "counted" and row["counted_by"]
    assert row["outcome"] == outcome(expected, row)


def outcome(expected: dict[str, Any], row: dict[str, Any]) -> str:
    """`length` by the count, whatever word the engine used."""
    match expected["error_class"]:
        case "truncated":
            return "engine_died"
        case None:
            reached = expected["finish_reason"] in ("length", "max_output_tokens", "max_tokens") or 0 < row["reserved_output_tokens"] <= (
                row["output_tokens"] or 0
            )
            return "length" if reached else "completed"
        case "mid_stream_error":
            return "engine_error"
    return "engine_refused" if row["source"] == "none" else "engine_error"


def test_counts_in_headers_are_taken_where_a_body_has_none(gateways: GatewayMaker, mock: MockProcess) -> None:
    one = FORMATS["tgi.generate"]
    headers = {"x-prompt-tokens": "12", "x-generated-tokens": "4"}
    mock.script({"raw": ['{"generated_text":"Hi"}'], "raw_type": "application/json", "headers": headers})
    policy: Any = {"apis": [one.name], "models": {"mock": {"counter": "tiktoken:o200k_base"}}}
    alone = gateways(mock.url, policy=policy, engine="generic")
    with RawClient(alone.port) as client:
        body = json.dumps({**one.body, "model": "mock"}).encode()
        client.request("POST", one.path, headers={"Authorization": f"Bearer {alone.opened().key}", "Content-Type": "application/json"}, body=body)
        answer = client.answer()
    row = row_of(alone, answer.headers["x-request-id"])
    assert (row["source"], row["input_tokens"], row["output_tokens"]) == ("reported", 12, 4)
    assert not set(headers) & set(answer.headers)


# lines


def before_the_end(case: Case) -> tuple[int, ...]:
    return (case.answer.rstrip(b"\n").rindex(b"\n") + 1,)


def test_nothing_but_lines_stands_in_a_stream_of_lines_however_long_it_is_silent(gateways: GatewayMaker, mock: MockProcess) -> None:
    upstreams: Any = {"engine": {"engine": "ollama", "timeouts": {"first_byte_s": 30}}}
    policy: Any = {"apis": ["ollama.chat"], "models": {"ollama": {"counter": "tiktoken:o200k_base", "default_output_tokens": 64}, "mock": {"counter": "bytes"}}}
    quick = gateways(mock.url, policy=policy, models={"ollama": "m", "mock": "m"}, settings={"bounds": {"keepalive_after_s": 1}, "upstreams": upstreams})
    mock.script({**LINES.script_json(before_the_end(LINES)), "gap_ms": 2_500})
    with sent(quick, LINES, quick.opened().key) as client:
        assert client.answer().body == LINES.answer


def test_a_last_line_without_its_end_goes_out_and_half_a_line_does_not(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.script(replace(LINES, answer=LINES.answer[:-1]).script_json(()))
    with sent(gateway, LINES, run.key) as client:
        assert client.answer().body == LINES.answer[:-1]
    mock.script(replace(LINES, answer=LINES.answer[:-30]).script_json(()))
    with sent(gateway, LINES, run.key) as client:
        body = client.answer().body
    *before, last = body.splitlines()
    assert b"\n".join(before) + b"\n" == LINES.answer[: before_the_end(LINES)[0]]
    assert json.loads(last)["code"] == "engine_died"


def test_an_engines_error_line_is_cleaned_of_addresses(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    first = LINES.answer[: LINES.answer.index(b"\n") + 1].decode()
    mock.script({"raw": [first, '{"error":"dial tcp 10.1.2.3:11434: refused"}\n'], "raw_type": "application/x-ndjson"})
    with sent(gateway, LINES, run.key) as client:
        body = client.answer().body
    assert body.startswith(first.encode())
    assert b"10.1.2.3" not in body
    assert json.loads(body.splitlines()[-1])["error"].startswith("dial tcp")


# an error as the first event of a 200

LOADING = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
FIRST: dict[str, tuple[str, str]] = {
    "anthropic.messages": ("text/event-stream", f"event: error\ndata: {json.dumps(LOADING)}\n\n"),
    "llamacpp.completion": ("text/event-stream", f"data: {json.dumps({'error': LOADING})}\n\n"),
}


@pytest.mark.parametrize("dialect", FIRST)
def test_an_error_as_the_first_event_is_a_plain_answer_with_the_code_that_it_names(
    gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, dialect: str
) -> None:
    kind, event = FIRST[dialect]
    mock.script({"raw": [event], "raw_type": kind})
    case = next(case for case in CASES if case.dialect == dialect and case.body.get("stream"))
    with sent(gateway, case, run.key) as client:
        answer = client.answer()
    assert (answer.status, answer.headers["content-type"]) == (503, "application/json") and answer.json()
    assert row_of(gateway, answer.headers["x-request-id"])["outcome"] == "engine_refused"
