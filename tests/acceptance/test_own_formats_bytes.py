"""Every answer in Anthropic's, Ollama's, llama.cpp's and other servers' own formats, through `gateway serve`: bytes, ledger, cuts and leavers.

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

DIALECTS = ("anthropic.messages", "ollama.chat", "ollama.generate", "ollama.embed", "llamacpp.completion", "tgi.generate", "lmstudio.chat")
PATHS = {
    "anthropic.messages": "/v1/messages",
    "ollama.chat": "/api/chat",
    "ollama.generate": "/api/generate",
    "ollama.embed": "/api/embed",
    "llamacpp.completion": "/completion",
    "tgi.generate": "/generate",
    "tgi.generate_stream": "/generate_stream",
    "lmstudio.chat": "/api/v1/chat",
}
KINDS = {"ollama": "ollama", "llamacpp": "llama.cpp", "tgi": "generic", "lmstudio": "generic", "anthropic": "llama.cpp"}


def as_spoken(case: Case) -> Case:
    return replace(case, dialect="tgi.generate_stream") if case.name == "tgi-generate-stream" else case


CASES = [as_spoken(case) for dialect in DIALECTS for case in cases(dialect)]
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
    upstreams = {kind: {"address": mock.url, "engine": kind, "slots": 4, "models": {kind: "mock"}} for kind in ("ollama", "generic")}
    models: Any = {"llama.cpp": {"default_output_tokens": 64}, "ollama": local, "generic": local}
    policy: Any = {"apis": list(PATHS), "models": models}
    short: Any = {**policy, "models": {name: {**model, "default_output_tokens": 2} for name, model in models.items()}, "call": {"output_tokens": 2}}
    names = {"llama.cpp": "mock", "mock": "mock"}
    settings: Any = {"upstreams": upstreams}
    folder = tmp_path_factory.mktemp("formats")
    with GatewayProcess(folder, mock.url, policy=policy, policies={"short": short}, models=names, settings=settings) as process:
        yield process


@pytest.fixture(scope="module")
def run(gateway: GatewayProcess) -> OpenedRun:
    return gateway.opened("formats", "r1")


def sent(gateway: GatewayProcess, case: Case, key: str) -> RawClient:
    body = {**case.body, "model": KINDS[case.dialect.partition(".")[0]]}
    client = RawClient(gateway.port)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    client.request("POST", PATHS[case.dialect], headers=headers, body=json.dumps(body).encode())
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
    assert answer.status == case.status, answer.body
    expected = case.expected
    row = row_of(gateway, answer.headers["x-request-id"])
    if expected["error_class"] == "truncated":
        assert answer.body.startswith(case.answer)
        assert b"engine_died" in answer.body[len(case.answer) :]
        assert row["outcome"] == "engine_died"
        return
    assert answer.body == case.answer
    if expected["usage_source"] == "reported":
        assert (row["source"], row["input_tokens"], row["output_tokens"], row["cached_tokens"]) == (
            "reported", expected["input_tokens"], expected["output_tokens"], expected["cached_input_tokens"],
        )  # fmt: skip
    if expected["error_class"] == "mid_stream_error":
        assert row["outcome"] == "engine_error"


@pytest.mark.parametrize("dialect", OF_FORMAT)
def test_the_terminal_event_comes_after_the_settlement(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, dialect: str) -> None:
    case = OF_FORMAT[dialect]
    mock.script({**case.script_json(), "gap_ms": 5})
    with sent(gateway, case, run.key) as client:
        answer = client.answer()
        ended_ns = client.got[-1].unix_ns
    with LedgerReader(gateway.ledger) as reader:
        ended_ms = next(row["ended_ms"] for row in reader.calls() if row["call_id"] == answer.headers["x-request-id"])
    assert ended_ms * 1_000_000 <= ended_ns


def halves(case: Case) -> tuple[int, ...]:
    """Cut before the last event: what follows waits."""
    separator = b"\n\n" if case.headers["content-type"] == "text/event-stream" else b"\n"
    return (case.answer.rstrip(b"\n").rindex(separator) + len(separator),)


@pytest.mark.parametrize("dialect", OF_FORMAT)
def test_a_stream_that_is_cut_ends_as_the_formats_own_error(gateway: GatewayProcess, mock: MockProcess, dialect: str) -> None:
    case = OF_FORMAT[dialect]
    run = gateway.opened("cut", dialect.replace(".", "-").replace("_", "-"))
    where = halves(case)
    mock.script({**case.script_json(where), "gap_ms": 5_000})
    with sent(gateway, case, run.key) as client:
        client.read_until(case.answer[: where[0]][-20:])
        gateway.control.close_run(run)
        answer = client.answer()
    ending = answer.body[where[0] :]
    assert answer.body.startswith(case.answer[: where[0]])
    assert row_of(gateway, answer.headers["x-request-id"])["outcome"] == "closed_cut"
    if case.dialect == "anthropic.messages":
        assert ending.startswith(b"event: error\ndata: ") and b'"billing_error"' in ending
    told = json.loads(ending.strip().rpartition(b"data: ")[2])
    assert "run_closed" in (told.get("code"), (told["error"] if isinstance(told["error"], dict) else {}).get("code"))
    assert not any(character in b"0123456789" for character in ending)


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


def sse(*values: dict[str, Any]) -> list[str]:
    return ["".join((f"event: {value['type']}\n" if "type" in value else "", f"data: {json.dumps(value)}\n\n")) for value in values]


def lines(*values: dict[str, Any]) -> list[str]:
    return [json.dumps(value) + "\n" for value in values]


WORDS = ["Each ", "word ", "is ", "one ", "token "] * 8
BEGIN: dict[str, Any] = {"type": "message_start", "message": {"id": "m1", "usage": {"input_tokens": 5, "output_tokens": 1}, "content": []}}
BLOCK: dict[str, Any] = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
ENDLESS = {
    "anthropic.messages": sse(BEGIN, BLOCK, *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}} for word in WORDS)),
    "ollama.chat": lines(*({"model": "m", "message": {"role": "assistant", "content": word}, "done": False} for word in WORDS)),
    "ollama.generate": lines(*({"model": "m", "response": word, "done": False} for word in WORDS)),
    "llamacpp.completion": sse(
        *({"index": 0, "content": word, "stop": False, "tokens_predicted": place + 1, "tokens_evaluated": 5} for place, word in enumerate(WORDS))
    ),
    "tgi.generate_stream": sse(
        *({"index": place, "token": {"id": 1, "text": word, "special": False}, "generated_text": None} for place, word in enumerate(WORDS))
    ),
    "lmstudio.chat": sse(*({"type": "message.delta", "content": word} for word in WORDS)),
}
"""Engines that don't know a cap."""
LENGTH_WORDS = {
    "anthropic.messages": b'"stop_reason":"max_tokens"', "ollama.chat": b'"done_reason":"length"', "ollama.generate": b'"done_reason":"length"',
    "llamacpp.completion": b'"stop_type":"limit"', "tgi.generate_stream": b'"finish_reason":"length"', "lmstudio.chat": b'"chat.end"',
}  # fmt: skip
PLAIN_BODIES: dict[str, dict[str, Any]] = {
    "anthropic.messages": {"messages": [{"role": "user", "content": "hi"}], "stream": True}, "ollama.chat": {"messages": [{"role": "user", "content": "hi"}]},
    "ollama.generate": {"prompt": "hi"}, "llamacpp.completion": {"prompt": "hi", "stream": True}, "tgi.generate_stream": {"inputs": "hi"},
    "lmstudio.chat": {"input": "hi", "stream": True},
}  # fmt: skip


def made(dialect: str) -> Case:
    kind = "application/x-ndjson" if dialect.startswith("ollama") else "text/event-stream"
    answer = "".join(ENDLESS[dialect]).encode()
    headers = {"content-type": kind}
    return Case(
        name=dialect, dialect=dialect, upstream="", body=PLAIN_BODIES[dialect], answer=answer, status=200, headers=headers, own_cuts=(), expected={}
    )  # fmt: skip


@pytest.mark.parametrize("dialect", ENDLESS)
def test_an_engine_that_runs_past_its_cap_is_cut_with_the_formats_own_length_end(gateway: GatewayProcess, mock: MockProcess, dialect: str) -> None:
    case = made(dialect)
    run = gateway.opened("short", dialect.replace(".", "-").replace("_", "-"), policy="short")
    mock.script({"raw": ENDLESS[dialect], "raw_type": case.headers["content-type"], "gap_ms": 40})
    with sent(gateway, case, run.key) as client:
        answer = client.answer()
    row = row_of(gateway, answer.headers["x-request-id"])
    assert row["outcome"] == "cap_cut"
    assert len(answer.body) < len(case.answer)
    assert LENGTH_WORDS[dialect] in answer.body[-500:]
    if dialect == "anthropic.messages":
        assert [event.json()["type"] for event in answer.events][-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_counts_in_headers_are_taken_where_a_body_has_none(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    case = replace(made("tgi.generate_stream"), dialect="tgi.generate")
    headers = {"x-prompt-tokens": "12", "x-generated-tokens": "4"}
    mock.script({"raw": ['{"generated_text":"Hi"}'], "raw_type": "application/json", "headers": headers})
    with sent(gateway, case, run.key) as client:
        answer = client.answer()
    row = row_of(gateway, answer.headers["x-request-id"])
    assert (row["source"], row["input_tokens"], row["output_tokens"]) == ("reported", 12, 4)
    assert not set(headers) & set(answer.headers)


def test_nothing_but_lines_stands_in_a_stream_of_lines_however_long_it_is_silent(gateways: Any, mock: MockProcess) -> None:
    case = OF_FORMAT["ollama.chat"]
    upstreams: Any = {"engine": {"engine": "ollama", "timeouts": {"first_byte_s": 30}}}
    policy: Any = {"apis": ["ollama.chat"], "models": {"ollama": {"counter": "tiktoken:o200k_base", "default_output_tokens": 64}, "mock": {"counter": "bytes"}}}
    quick = gateways(mock.url, policy=policy, models={"ollama": "m", "mock": "m"}, settings={"bounds": {"keepalive_after_s": 1}, "upstreams": upstreams})
    mock.script({**case.script_json(halves(case)), "gap_ms": 2_500})
    with sent(quick, case, quick.opened().key) as client:
        assert client.answer().body == case.answer


def test_a_last_line_without_its_end_goes_out_and_half_a_line_does_not(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    case = OF_FORMAT["ollama.chat"]
    mock.script(replace(case, answer=case.answer[:-1]).script_json(()))
    with sent(gateway, case, run.key) as client:
        assert client.answer().body == case.answer[:-1]
    mock.script(replace(case, answer=case.answer[:-30]).script_json(()))
    with sent(gateway, case, run.key) as client:
        body = client.answer().body
    *before, last = body.splitlines()
    assert b"\n".join(before) + b"\n" == case.answer[: halves(case)[0]]
    assert json.loads(last)["code"] == "engine_died"


def test_an_engines_error_line_is_cleaned_of_addresses(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    case = OF_FORMAT["ollama.chat"]
    first = case.answer[: case.answer.index(b"\n") + 1].decode()
    mock.script({"raw": [first, '{"error":"dial tcp 10.1.2.3:11434: refused"}\n'], "raw_type": "application/x-ndjson"})
    with sent(gateway, case, run.key) as client:
        body = client.answer().body
    assert body.startswith(first.encode())
    assert b"10.1.2.3" not in body
    assert json.loads(body.splitlines()[-1])["error"].startswith("dial tcp")


@pytest.mark.parametrize("dialect", ["anthropic.messages", "ollama.chat", "llamacpp.completion"])
def test_an_error_as_the_first_event_is_a_plain_answer_with_its_code(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, dialect: str) -> None:
    case = OF_FORMAT[dialect]
    error = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
    text = {"anthropic.messages": f"event: error\ndata: {json.dumps(error['error'])}\n\n", "ollama.chat": '{"error":"server busy"}\n'}
    mock.script({"raw": [text.get(dialect, f"data: {json.dumps(error)}\n\n")], "raw_type": case.headers["content-type"]})
    with sent(gateway, case, run.key) as client:
        answer = client.answer()
    assert answer.status == (502 if dialect == "ollama.chat" else 503)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()
    if answer.status == 503:
        assert row_of(gateway, answer.headers["x-request-id"])["outcome"] == "engine_refused"
