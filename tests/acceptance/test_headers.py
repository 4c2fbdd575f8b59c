"""Headers by allow-list both ways; the engine's credential reaches the engine alone; an engine's errors tell nothing of its machine."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, RawClient

CREDENTIAL = "engine-credential-9f8e7d6c"
ENGINE_SEES = {"host", "accept", "accept-encoding", "content-type", "content-length", "x-request-id", "authorization"}
AGENT_SEES = {
    "x-request-id", "request-id", "content-type", "content-length", "transfer-encoding", "cache-control", "retry-after", "date", "server", "connection",
    "x-should-retry", "x-gateway-left-requests", "x-gateway-left-input", "x-gateway-left-output", "x-gateway-clamped", "x-gateway-waited-ms",
}  # fmt: skip
ODD_REQUEST = {
    "X-Conversation-Id": "odd",
    "X-Data-Parallel-Rank": "1",
    "x-sglext-ids": "odd",
    "x-sglext-anything": "odd",
    "X-Request-Id": "odd",
    "Request-Id": "odd",
    "Cookie": "session=odd",
    "Forwarded": "for=odd",
    "X-Forwarded-For": "10.9.8.7",
    "X-Forwarded-Host": "odd",
    "X-Real-IP": "10.9.8.7",
    "Via": "1.1 odd",
    "Origin": "http://odd",
    "Referer": "http://odd",
    "User-Agent": "odd/1.0",
    "Accept-Encoding": "gzip, br",
    "Accept": "text/html, odd",
    "Accept-Language": "odd",
    "Content-Type": "text/odd",
    "Content-Language": "odd",
    "Range": "bytes=0-1",
    "If-None-Match": "odd",
    "TE": "trailers",
    "Proxy-Authorization": "Basic odd",
    "X-Api-Version": "odd",
    "OpenAI-Organization": "odd",
    "anthropic-version": "odd",
    "x-stainless-retry-count": "3",
    "X-HTTP-Method-Override": "DELETE",
    "X-Session-Id": "odd-session",
    "x-gateway-anything": "odd",
    "traceparent": "00-odd",
}
ODD_ANSWER = {
    "Set-Cookie": "engine=odd; Path=/",
    "Server": "odd-engine/9.9",
    "X-Internal-Host": "gpu-box.internal",
    "Via": "1.1 odd-proxy",
    "X-Request-Id": "odd",
    "Request-Id": "odd",
    "X-Powered-By": "odd",
    "Location": "http://10.0.0.1/odd",
    "Alt-Svc": 'h3=":443"',
    "Access-Control-Allow-Origin": "*",
    "ETag": "odd",
    "x-should-retry": "true",
    "x-gateway-limit": "odd",
    "x-gateway-left-requests": "odd",
    "openai-processing-ms": "7",
    "x-compute-time": "7",
    "X-Generated-Tokens": "7",
}


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    settings = {"upstreams": {"engine": {"credential_env": "TEST_ENGINE_CREDENTIAL"}}}
    folder = tmp_path_factory.mktemp("headers")
    policy = {"guard": {"strip": ["conversation_headers", "engine_headers", "routing"]}}  # else those that steer are refused
    with GatewayProcess(folder, mock.url, policy=policy, settings=settings, env={"TEST_ENGINE_CREDENTIAL": CREDENTIAL}) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="module")
def run(gateway: GatewayProcess) -> OpenedRun:
    return gateway.opened("c1", "r1")


def ask(gateway: GatewayProcess, run: OpenedRun, mock: MockProcess, script: object, *, stream: bool, headers: dict[str, str] | None = None) -> RawAnswer:
    mock.clear()
    mock.queue(script)
    with RawClient(gateway.port) as client:
        client.chat(run.key, headers={"Connection": "close", **(headers or {})}, stream=stream, max_tokens=3)
        return client.answer()


@pytest.mark.parametrize("stream", [False, True])
def test_no_odd_header_of_an_agent_reaches_the_engine(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, stream: bool) -> None:
    answer = ask(gateway, run, mock, {}, stream=stream, headers=ODD_REQUEST)
    assert answer.status == 200
    (call,) = mock.calls()
    seen = {name.lower(): value for name, value in call["headers"]}
    assert len(seen) == len(call["headers"]) and seen.keys() <= ENGINE_SEES
    assert not [name for name, value in seen.items() if "odd" in value or "10.9.8.7" in value]
    assert seen["x-request-id"] == answer.headers["x-request-id"] == answer.headers["request-id"]
    assert seen["authorization"] == f"Bearer {CREDENTIAL}"
    assert (seen["accept-encoding"], seen["content-type"]) == ("identity", "application/json")
    assert run.key not in json.dumps(call)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("die", ["", "400", "401", "429", "500", "503"])
def test_no_odd_header_of_an_engine_reaches_the_agent(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, stream: bool, die: str) -> None:
    answer = ask(gateway, run, mock, {"headers": ODD_ANSWER, "die": die}, stream=stream)
    assert answer.headers.keys() <= AGENT_SEES
    assert not [name for name, value in answer.headers.items() if "odd" in value or "internal" in value]
    assert answer.headers["x-request-id"] == answer.headers["request-id"]
    assert "true" not in answer.headers.get("x-should-retry", "")


def test_an_engines_cookie_is_never_sent_back_to_it(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    ask(gateway, run, mock, {"headers": {"Set-Cookie": "engine=secret; Path=/"}}, stream=False)
    ask(gateway, run, mock, {}, stream=False)
    assert "engine=secret" not in json.dumps(mock.calls()[0]["headers"])


LEAKS: dict[str, dict[str, Any]] = {
    "an address": {"error": {"code": 500, "message": "upstream http://10.20.30.40:9000/v1 refused", "type": "server_error"}},
    "a path": {"error": {"code": 500, "message": "can't open /home/operator/models/secret.gguf", "type": "server_error"}},
    "a trace": {"error": {"code": 500, "message": 'Traceback (most recent call last):\n  File "/srv/engine/app.py", line 3, in go\n    raise X("secret")'}},
    "a trace of its own": {"error": {"message": "no", "trace": "at secret (/srv/engine/app.js:1:2)"}},
    "a host": {"detail": "connect to gpu-box.internal:8000 failed", "object": "error"},
    "escapes": {"error": "see http:\\/\\/10.20.30.40\\/x".replace("\\", "")},
}
HIDDEN = ("10.20.30.40", "/home/operator", "secret", "/srv/engine", "gpu-box")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [200, 400, 404, 500, 503])
@pytest.mark.parametrize("leak", LEAKS)
def test_an_engines_error_is_cleaned_and_still_json(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, leak: str, status: int, stream: bool) -> None:
    raw = json.dumps(LEAKS[leak])
    script = {"raw": [raw], "raw_status": status, "raw_type": "application/json"}
    answer = ask(gateway, run, mock, script, stream=stream)
    assert not [word for word in HIDDEN if word.encode() in answer.body], answer.body
    assert isinstance(answer.json(), dict)
    assert answer.status == status or status == 200


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("after", [0, 1])
def test_an_error_event_is_cleaned_and_the_stream_is_whole(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, leak: str, after: int) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "see http://10.9.9.9/ in /home/agent/x"}}], "object": "chat.completion.chunk"}
    events = [*([f"data: {json.dumps(chunk)}\n\n"] * after), f"data: {json.dumps(LEAKS[leak])}\n\n"]
    answer = ask(gateway, run, mock, {"raw": events}, stream=True)
    assert not [word for word in HIDDEN if word.encode() in answer.body], answer.body
    if after:
        assert b"see http://10.9.9.9/ in /home/agent/x" in answer.body, "content is never cleaned"
        for line in answer.body.split(b"\n\n"):
            if line.startswith(b"data: {"):
                json.loads(line[6:])
    else:
        assert answer.status >= 400 and isinstance(answer.json(), dict)


def test_a_clean_error_passes_byte_for_byte(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    raw = '{ "error": {"code":400, "message":"request (9 tokens) exceeds the available context size (4 tokens), try increasing it"} }'
    answer = ask(gateway, run, mock, {"raw": [raw], "raw_status": 400, "raw_type": "application/json"}, stream=True)
    assert (answer.status, answer.body.decode()) == (400, raw)


def test_the_engines_credential_is_in_no_answer_log_metric_or_ledger(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    """Also where the engine says it aloud in an error."""
    told = json.dumps({"error": {"message": f"wrong header Authorization: Bearer {CREDENTIAL}", "code": 500}})
    answers = [ask(gateway, run, mock, script, stream=False) for script in ({}, {"die": "401"}, {"raw": [told], "raw_status": 500})]
    helpers = [record for record in mock.log() if record["path"] != "/v1/chat/completions"]
    assert all(CREDENTIAL in json.dumps(record["headers"]) for record in helpers)
    control = gateway.control
    texts = [control.text("/metrics"), json.dumps(control.get("/v1/status")), json.dumps(control.run(run)), json.dumps(control.get("/v1/campaigns/c1"))]
    texts += [gateway.process.output, *(repr(answer.headers) + repr(answer.body) for answer in answers)]
    for path in gateway.folder.iterdir():
        if path.is_file():
            texts.append(path.read_bytes().decode("latin-1"))
    for text in texts:
        assert CREDENTIAL not in text
    with closing(sqlite3.connect(f"file:{gateway.ledger}?mode=ro", uri=True)) as ledger:
        assert CREDENTIAL not in "".join(ledger.iterdump())
        assert run.key not in "".join(ledger.iterdump())
    assert run.key not in gateway.process.output
