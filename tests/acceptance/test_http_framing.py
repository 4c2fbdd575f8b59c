"""Where one request ends and the next begins: what is ambiguous is refused, everything else is handled with the same boundaries as the client meant.

A call is never forwarded with a body that anyone in front could have seen otherwise: the engine's log says what arrived.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import CHAT
from tests.support.wire import Wire, chunked, request, talk

BODY = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}).encode()
STREAM = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, "stream": True}).encode()
SMUGGLED = "smuggled"


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


def post(run: OpenedRun, more: str = "", body: bytes = BODY, *, length: bool = True, line: str = f"POST {CHAT} HTTP/1.1") -> bytes:
    """By hand: `more` are header lines as they are."""
    size = f"Content-Length: {len(body)}\r\n" if length else ""
    return f"{line}\r\nHost: gateway\r\nAuthorization: Bearer {run.key}\r\n{size}{more}\r\n".encode("latin-1") + body


def hidden(run: OpenedRun) -> bytes:
    """A whole call, to be hidden behind or in another."""
    body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": SMUGGLED}]}).encode()
    return post(run, "Connection: close\r\n", body)


def malformed(run: OpenedRun) -> dict[str, bytes]:
    te = "Transfer-Encoding: chunked\r\n"
    whole, half = chunked(BODY), b"%x\r\n%s" % (len(BODY), BODY)

    def chunks(body: bytes) -> bytes:
        return post(run, te, body, length=False)

    return {
        "a length and chunks, by the length": post(run, te, b"0\r\n\r\n" + hidden(run)),
        "a length and chunks, by the chunks": post(run, te + "Content-Length: 4\r\n", whole + hidden(run), length=False),
        "chunks and a length": post(run, "Content-Length: 4\r\n" + te, whole, length=False),
        "two equal lengths": post(run, f"Content-Length: {len(BODY)}\r\n"),
        "two lengths": post(run, "Content-Length: 0\r\n") + hidden(run),
        "a list of lengths": post(run, f"Content-Length: {len(BODY)}, {len(BODY)}\r\n", length=False),
        "a length with a plus": post(run, f"Content-Length: +{len(BODY)}\r\n", length=False),
        "a length with a minus": post(run, "Content-Length: -1\r\n", length=False),
        "a hexadecimal length": post(run, "Content-Length: 0x50\r\n", length=False),
        "a length with a blank": post(run, "Content-Length: 8 3\r\n", length=False),
        "a length past all numbers": post(run, "Content-Length: 99999999999999999999999\r\n", length=False),
        "no length in letters": post(run, "Content-Length: many\r\n", length=False),
        "a blank before the colon": post(run, f"Content-Length : {len(BODY)}\r\n", length=False),
        "a tab before the colon": post(run, "Transfer-Encoding\t: chunked\r\n", whole, length=False),
        "a folded header": post(run, "X-Note: a\r\n b\r\n"),
        "a folded coding": post(run, "Transfer-Encoding:\r\n chunked\r\n"),
        "bare line feeds": post(run).replace(b"\r\n", b"\n"),
        "one bare line feed": post(run).replace(b"Host: gateway\r\n", b"Host: gateway\n"),
        "bare carriage returns": post(run).replace(b"\r\n", b"\r"),
        "a carriage return in a value": post(run, "X-Note: a\rTransfer-Encoding: chunked\r\n"),
        "a zero byte in a value": post(run, "X-Note: a\0b\r\n"),
        "a zero byte in a name": post(run, "X\0Note: a\r\n"),
        "a header without a colon": post(run, "X-Note\r\n"),
        "a header without a name": post(run, ": x\r\n"),
        "a coding that is none": post(run, "Transfer-Encoding: xchunked\r\n", whole, length=False),
        "chunked not last": post(run, "Transfer-Encoding: chunked, gzip\r\n", whole, length=False),
        "chunked, then identity": post(run, te + "Transfer-Encoding: identity\r\n", whole, length=False),
        "compressed chunks": post(run, "Transfer-Encoding: gzip, chunked\r\n", whole, length=False),
        "a coding alone": post(run, "Transfer-Encoding: gzip\r\n", BODY, length=False),
        "a coding behind a vertical tab": post(run, "Transfer-Encoding: \x0bchunked\r\n", whole, length=False),
        "a coding before a form feed": post(run, "Transfer-Encoding: chunked\x0c\r\n", whole, length=False),
        "a coding behind a hard blank": post(run, "Transfer-Encoding:\xa0chunked\r\n", whole, length=False),
        "a coding in quotes": post(run, 'Transfer-Encoding: "chunked"\r\n', whole, length=False),
        "a coding with a parameter": post(run, "Transfer-Encoding: chunked;q=1\r\n", whole, length=False),
        "a coding and a comma": post(run, "Transfer-Encoding: chunked,\r\n", whole, length=False),
        "a comma and a coding": post(run, "Transfer-Encoding: ,chunked\r\n", whole, length=False),
        "chunked twice in a line": post(run, "Transfer-Encoding: chunked, chunked\r\n", whole, length=False),
        "chunked twice": post(run, te + te, whole, length=False),
        "an empty coding": post(run, "Transfer-Encoding:\r\n", whole, length=False),
        "an empty coding and a length": post(run, "Transfer-Encoding: \r\n"),
        "identity and a length": post(run, "Transfer-Encoding: identity\r\n"),
        "an underscore in the coding's name": post(run, "Transfer_Encoding: chunked\r\n", whole, length=False),
        "an empty length": post(run, "Content-Length: \r\n", length=False),
        "a length and a comma": post(run, f"Content-Length: {len(BODY)},\r\n", length=False),
        "a length behind a vertical tab": post(run, f"Content-Length: \x0b{len(BODY)}\r\n", length=False),
        "a length with a fraction": post(run, f"Content-Length: {len(BODY)}.0\r\n", length=False),
        "a length with an underscore": post(run, "Content-Length: 8_3\r\n", length=False),
        "a length in other digits": post(run, "Content-Length: \xb2\r\n", length=False),
        "the first header is folded": post(run).replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\n X: y\r\n"),
        "chunks of HTTP/1.0": post(run, te, whole, length=False, line=f"POST {CHAT} HTTP/1.0"),
        "a chunk size that is none": chunks(b"zz\r\n" + BODY + b"\r\n0\r\n\r\n"),
        "a negative chunk size": chunks(b"-5\r\n" + BODY + b"\r\n0\r\n\r\n"),
        "a chunk size with a plus": chunks(b"+" + whole),
        "a chunk size with 0x": chunks(b"0x" + whole),
        "a chunk size past all numbers": chunks(b"f" * 17 + b"\r\n" + BODY + b"\r\n0\r\n\r\n"),
        "an empty chunk size": chunks(b"\r\n" + BODY + b"\r\n0\r\n\r\n"),
        "a chunk longer than its size": chunks(half + b"XX\r\n0\r\n\r\n"),
        "a chunk size ended by a line feed": chunks(whole.replace(b"\r\n", b"\n", 1)),
        "chunks ended by line feeds": chunks(whole.replace(b"\r\n", b"\n")),
        "a chunk size behind a blank": chunks(b" " + whole),
        "a chunk size before a blank": chunks(whole.replace(b"\r\n", b" \r\n", 1)),
        "a chunk size that wraps around": chunks(b"1" + b"0" * 15 + whole),
        "an extension ended by a line feed": chunks(whole.replace(b"\r\n", b";a\n", 1)),
        "an extension with a line feed": chunks(whole.replace(b"\r\n", b";a\nb\r\n", 1)),
        "an extension with a carriage return": chunks(whole.replace(b"\r\n", b";a\rb\r\n", 1)),
        "an extension with a zero byte": chunks(whole.replace(b"\r\n", b";a=\0\r\n", 1)),
        "an extension with a line's end in quotes": chunks(whole.replace(b"\r\n", b';a="\r\n', 1) + b'"\r\n'),
        "a chunk without its end": chunks(half + b"0\r\n\r\n"),
        "a chunk ended by a line feed": chunks(half + b"\n0\r\n\r\n"),
        "a chunk ended by a carriage return": chunks(half + b"\r0\r\n\r\n"),
        "a last chunk ended by line feeds": chunks(half + b"\r\n0\n\n"),
        "a body ended by a line feed": chunks(half + b"\r\n0\r\n\n"),
        "a coding among the trailers": chunks(whole[:-2] + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"),
        "a trailer ended by a line feed": chunks(whole[:-2] + b"X-T: 1\n\r\n"),
        "a request among the trailers": chunks(whole[:-2] + b"GET /x HTTP/1.1\r\n\r\n"),
        "thousands of trailers": chunks(whole[:-2] + b"X-T: 1\r\n" * 5_000 + b"\r\n"),
        "a huge trailer": chunks(whole[:-2] + b"X-T: " + b"1" * 300_000 + b"\r\n\r\n"),
        "two hosts": post(run, "Host: other\r\n"),
        "no host": post(run).replace(b"Host: gateway\r\n", b""),
        "more headers than are taken": post(run, "".join(f"X-{number}: 1\r\n" for number in range(130))),
        "large headers that are too much together": post(run, "".join(f"X-{number}: {'a' * 15_000}\r\n" for number in range(100))),
        "blank lines without end": b"\r\n" * 500_000 + post(run),
        "thousands of headers": post(run, "".join(f"X-{number}: 1\r\n" for number in range(5_000))),
        "a huge header": post(run, f"X-Note: {'a' * 300_000}\r\n"),
        "a huge header name": post(run, f"{'a' * 300_000}: 1\r\n"),
        "a huge target": post(run, line=f"POST /{'a' * 300_000} HTTP/1.1"),
        "a huge query": post(run, line=f"POST {CHAT}?{'a' * 300_000} HTTP/1.1"),
        "a method that is none": post(run, line=f"GRAB {CHAT} HTTP/1.1"),
        "a version that is none": post(run, line=f"POST {CHAT} HTTP/4.2"),
        "HTTP/0.9": b"GET /v1/models\r\n\r\n",
        "a version in small letters": post(run, line=f"POST {CHAT} http/1.1"),
        "a method in small letters": post(run, line=f"post {CHAT} HTTP/1.1"),
        "a request line with tabs": post(run, line=f"POST\t{CHAT}\tHTTP/1.1"),
        "a request line with a blank behind it": post(run, line=f"POST {CHAT} HTTP/1.1 "),
        "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + hidden(run),
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200,
        "a blank before the method": b" " + post(run),
    }


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
