"""Where one request ends and the next begins: what is ambiguous is refused, everything else is handled with the same boundaries as the client meant.

A call is never forwarded with a body that anyone in front could have seen otherwise: the engine's log says what arrived.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.support.control import OpenedRun
from tests.support.framings import BODY, SMUGGLED, STREAM, hidden, malformed, odd, post
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import CHAT
from tests.support.wire import Wire, chunked, request, talk


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("framing"), mock.url) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="module")
def run(gateway: GatewayProcess) -> OpenedRun:
    return gateway.opened("c1", "r1")


NAMES = list(malformed(OpenedRun(campaign="", run="", keys={"": ""})))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_ambiguous_or_malformed_is_refused_once_in_our_form_and_ends_the_connection(
    gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, name: str
) -> None:
    mock.clear()
    conversation = talk(gateway.port, malformed(run)[name] + b"\r\n" + hidden(run), timeout_s=8)
    assert mock.calls() == []
    assert conversation.closed and conversation.rest == b""
    assert conversation.statuses == [400], conversation
    (answer,) = conversation.answers
    assert answer.json()["error"]["code"] in ("bad_request", "body_invalid")
    assert answer.headers["x-request-id"] == answer.headers["request-id"]
    assert answer.headers["server"] == "model-gateway", "what it is built with is nobody's business"
    assert run.key.encode() not in answer.body


@pytest.mark.parametrize("name", list(odd(OpenedRun(campaign="", run="", keys={"": ""}))))
def test_what_is_odd_is_one_request_and_what_comes_behind_it_is_the_next(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, name: str) -> None:
    """Or the connection ends with its answer, and what came behind it is nothing."""
    mock.clear()
    last = "upgrade" in name or name in ("HTTP/1.0", "a connection that is asked for")
    with Wire(gateway.port) as wire:
        wire.send(odd(run)[name] + post(run, body=STREAM))
        first = wire.answer(head=name == "a call in a HEAD")
        if last:
            assert wire.is_closed()
        else:
            assert wire.answer().body.endswith(b"data: [DONE]\n\n")
    bodies = [json.loads(call["body"]) for call in mock.calls()]
    assert [bool(body.get("stream")) for body in bodies] == [False] * (first.status == 200) + [True] * (not last)
    assert SMUGGLED not in json.dumps(bodies)
    assert first.status in (200, 404) or name in ("a call in a call", "a connection that is asked for", "HTTP/1.0")


def test_what_was_malformed_is_written_nowhere(gateway: GatewayProcess, run: OpenedRun) -> None:
    """A head that can't be read may hold a key."""
    before = gateway.control.metric("gateway_refusals_total", code="bad_request")
    talk(gateway.port, post(run).replace(b"\r\n", b"\n"))
    talk(gateway.port, post(run, f"X-Note: {run.key}\0\r\n"))
    assert run.key not in gateway.process.output
    assert "Traceback" not in gateway.process.output
    assert gateway.control.metric("gateway_refusals_total", code="bad_request") == before + 2


def test_chunks_in_any_cut_are_one_body(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.clear()
    cuts = [
        chunked(BODY),
        chunked(*(BODY[at : at + 1] for at in range(len(BODY)))),
        chunked(BODY).replace(b"\r\n", b";name=value\r\n", 1),
        b"0" * 5 + chunked(BODY),
    ]
    for body in cuts:
        conversation = talk(gateway.port, post(run, "Transfer-Encoding: chunked\r\nConnection: close\r\n", body, length=False))
        assert conversation.statuses == [200], conversation
    assert [json.loads(call["body"])["messages"] for call in mock.calls()] == [json.loads(BODY)["messages"]] * len(cuts)


def test_trailers_are_no_headers(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.clear()
    body = chunked(BODY)[:-2] + b"X-Request-Id: evil\r\nAuthorization: Bearer x\r\n\r\n"
    talk(gateway.port, post(run, "Transfer-Encoding: chunked\r\nConnection: close\r\n", body, length=False))
    assert "evil" not in json.dumps([call["headers"] for call in mock.calls()])


def test_a_chunk_that_breaks_while_its_body_is_read_is_refused_at_once(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.clear()
    began = time.monotonic()
    first = post(run, "Transfer-Encoding: chunked\r\n", b"%x\r\n%s\r\n" % (20, BODY[:20]), length=False)
    conversation = talk(gateway.port, first, b"zz\r\n" + hidden(run), pause_s=0.2, timeout_s=15)
    assert conversation.statuses[:1] == [400] and mock.calls() == []
    assert conversation.answers[0].json()["error"]["code"] == "body_invalid"
    assert time.monotonic() - began < 15


def test_a_body_that_comes_slowly_is_waited_for(gateway: GatewayProcess, run: OpenedRun) -> None:
    whole = post(run, "Connection: close\r\n")
    at = len(whole) - len(BODY)
    pieces = [whole[:30], whole[30:at], *(whole[cut : cut + 10] for cut in range(at, len(whole), 10))]
    assert talk(gateway.port, *pieces, pause_s=0.05).statuses == [200]


def test_a_client_that_leaves_within_its_body_leaves_nothing(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.clear()
    for more, body, length in (("Content-Length: 1000\r\n", BODY, False), ("Transfer-Encoding: chunked\r\n", chunked(BODY)[:-5], False)):
        with Wire(gateway.port) as wire:
            wire.send(post(run, more, body, length=length))
            time.sleep(0.1)
    assert talk(gateway.port, post(run, "Connection: close\r\n")).statuses == [200]
    assert len(mock.calls()) == 1
    assert gateway.control.metric("gateway_in_flight_calls") == 0


def test_pipelined_requests_are_answered_each_in_its_order(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.clear()
    key = {"x-api-key": run.key}
    sent = (
        post(run)
        + request("GET", "/slots", key)
        + post(run, body=STREAM)
        + request("GET", "/v1/models", key)
        + post(run, body=b"{}")
        + post(run, "Connection: close\r\n")
    )
    conversation = talk(gateway.port, sent)
    assert conversation.statuses == [200, 404, 200, 200, 400, 200]
    assert conversation.answers[2].body.endswith(b"data: [DONE]\n\n")
    assert conversation.answers[3].json()["object"] == "list"
    assert len(mock.calls()) == 3


def test_a_call_in_the_body_of_another_is_its_body(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.clear()
    for line in (f"POST {CHAT} HTTP/1.1", "GET /v1/models HTTP/1.1", "POST /slots HTTP/1.1", "DELETE /x HTTP/1.1", "OPTIONS * HTTP/1.1"):
        conversation = talk(gateway.port, post(run, "Connection: close\r\n", hidden(run), line=line))
        assert len(conversation.answers) == 1, line
    for more in UPGRADES:
        with Wire(gateway.port) as wire:
            wire.send(post(run, more, hidden(run)) + request("GET", "/v1/models", {"x-api-key": run.key}, close=True))
            assert wire.answer().status == 400
    assert mock.calls() == []


UPGRADES = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\n",
    "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMA\r\n",
    "Upgrade: TLS/1.0\r\nConnection: upgrade\r\n",
)


@pytest.mark.parametrize("more", UPGRADES)
def test_an_upgrade_is_ignored_and_its_connection_ends_with_the_answer(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, more: str) -> None:
    """What came behind it could belong to the protocol that was asked for: it is neither another request nor the second half of one."""
    mock.clear()
    chunks = {"more": more + "Transfer-Encoding: chunked\r\n", "body": chunked(BODY), "length": False}
    for sent in (post(run, more), post(run, **chunks), post(run, more, STREAM)):  # type: ignore[arg-type]
        conversation = talk(gateway.port, sent + b"POST /v1/x HTTP/1.1\r\nX-Note: ", hidden(run), pause_s=0.2)
        assert conversation.statuses == [200] and conversation.interim == []
        assert "upgrade" not in conversation.answers[0].headers and conversation.answers[0].headers["connection"] == "close"
    assert SMUGGLED not in json.dumps([call["body"] for call in mock.calls()]) and len(mock.calls()) == 3


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_what_asks_for_no_call_is_answered_without_one_and_its_body_is_no_request(
    gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, method: str
) -> None:
    mock.clear()
    with Wire(gateway.port) as wire:
        for target, status in [("/v1/models", 200 if method == "GET" else 404), (CHAT, 404), *([("*", 404)] if method == "OPTIONS" else [])]:
            for more, body, length in (("", b"", True), ("", hidden(run), True), ("Transfer-Encoding: chunked\r\n", chunked(hidden(run)), False)):
                wire.send(post(run, more, body, length=length, line=f"{method} {target} HTTP/1.1"))
                answer = wire.answer(head=method == "HEAD")
                assert answer.status == status, (target, answer)
        wire.send(post(run))
        assert wire.answer().status == 200
    assert len(mock.calls()) == 1


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(gateway: GatewayProcess, run: OpenedRun) -> None:
    with Wire(gateway.port) as wire:
        for body in (BODY, STREAM):
            wire.send(post(run, "Expect: 100-continue\r\n", body)[: -len(body)])
            time.sleep(0.1)
            wire.send(body)
            assert wire.answer().status == 200
        assert wire.interim == [100, 100]


@pytest.mark.parametrize(("more", "key", "status"), [("Content-Length: 999999999999\r\n", True, 400), ("Content-Length: 10\r\n", False, 401)])
def test_a_client_that_will_be_refused_is_not_asked_for_its_body(gateway: GatewayProcess, run: OpenedRun, more: str, key: bool, status: int) -> None:
    with Wire(gateway.port) as wire:
        head = post(run, f"{more}Expect: 100-continue\r\n", b"", length=False)
        wire.send(head if key else head.replace(run.key.encode(), b"gw-x"))
        assert wire.answer().status == status
        assert wire.interim == []


def test_one_connection_serves_many_calls_and_the_refusals_between_them(gateway: GatewayProcess, run: OpenedRun) -> None:
    with Wire(gateway.port) as wire:
        ids = set()
        for number in range(120):
            body, status = [(BODY, 200), (STREAM, 200), (b"{}", 400), (b"[", 400), (BODY.replace(b"mock", b"none"), 404)][number % 5]
            wire.send(post(run, body=body))
            answer = wire.answer()
            assert answer.status == status, answer.body
            ids.add(answer.headers["request-id"])
        assert len(ids) == 120


def test_a_client_of_http_1_0_gets_whole_answers_and_may_keep_its_connection(gateway: GatewayProcess, run: OpenedRun) -> None:
    old = f"POST {CHAT} HTTP/1.0"
    assert talk(gateway.port, post(run, line=old)).statuses == [200]
    streamed = talk(gateway.port, post(run, body=STREAM, line=old))
    assert streamed.statuses == [200]
    assert "transfer-encoding" not in streamed.answers[0].headers
    assert streamed.answers[0].body.endswith(b"data: [DONE]\n\n")
    with Wire(gateway.port) as wire:
        for _ in range(3):
            wire.send(post(run, "Connection: keep-alive\r\n", line=old))
            answer = wire.answer()
            assert (answer.status, answer.headers["connection"].lower()) == (200, "keep-alive")
