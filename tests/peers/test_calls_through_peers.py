"""Calls through a peer: unchanged by the byte, event by event, refusals with all their headers; and an agent that leaves is heard through it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.peers.peer import Peer
from tests.support import record
from tests.support.control import OpenedRun
from tests.support.framings import STREAM, post
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, RawClient, chat_once
from tests.support.waiting import eventually
from tests.support.wire import Wire

GAP_MS = 250
OF_EACH_CALL = {"x-request-id", "request-id", "date", "x-gateway-waited-ms"}
OF_THE_WAY = {"connection", "keep-alive", "server", "transfer-encoding"}
"""Between a peer and its client; nginx puts its own name in place of ours."""


def chunk(text: str, finish: str = "null") -> bytes:
    return b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":%b}]}\n\n' % (text.encode(), finish.encode())


EVENTS = [chunk("one"), chunk("two"), chunk("three"), chunk("", '"stop"')]
ENDING = [b'data: {"id":"x","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":4,"total_tokens":11}}\n\n', b"data: [DONE]\n\n"]


def _names(call: dict[str, Any]) -> set[str]:
    return {name.lower() for name, *_ in call["headers"]}


def kept(answer: RawAnswer) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in OF_EACH_CALL | OF_THE_WAY}


def left(mock: MockProcess) -> bool:
    return bool(mock.calls()[-1]["left"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("size", [10, 300_000], ids=["small", "large"])
def test_an_answer_is_the_same_as_without_it(peer: Peer, gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, stream: bool, size: int) -> None:
    whole = b"".join(EVENTS) + b"".join(ENDING)
    plain = b'{"id":"x","choices":[{"index":0,"message":{"content":"%b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":4}}' % (
        b"a" * size
    )
    mock.script({"raw": [(whole if stream else plain).decode()], "raw_type": "text/event-stream" if stream else "application/json"})
    message = [{"role": "user", "content": "hello " * (size // 10)}]
    through = chat_once(peer.port, run.key, stream=stream, max_tokens=9, messages=message)
    direct = chat_once(gateway.port, run.key, stream=stream, max_tokens=9, messages=message)
    assert (through.status, through.complete, direct.status) == (200, True, 200)
    assert through.body == direct.body
    assert {name: value for name, value in kept(through).items() if name != "content-length"} == {
        name: value for name, value in kept(direct).items() if name != "content-length"
    }
    one, other = mock.calls()
    assert one["body"] == other["body"] and _names(one) == _names(other), "what a peer adds reaches no engine"


def test_an_event_comes_before_the_engine_has_written_the_next(peer: Peer, mock: MockProcess, run: OpenedRun) -> None:
    mock.script({"raw": [piece.decode() for piece in EVENTS + ENDING], "gap_ms": GAP_MS})
    with RawClient(peer.port) as client:
        client.chat(run.key, stream=True, max_tokens=9)
        assert client.answer().complete
        sent = [one[0] for one in mock.calls()[-1]["sent"]]
        for number, event in enumerate(EVENTS[:-1]):
            assert sent[number] < client.moment_of(event).monotonic_ns < sent[number + 1]


@pytest.mark.parametrize("leave", [RawClient.close, RawClient.reset], ids=["fin", "rst"])
@pytest.mark.parametrize("when", ["before the first event", "amid the stream"])
def test_an_agent_that_leaves_is_heard_at_the_engine(peer: Peer, gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, when: str, leave: object) -> None:
    mock.script({"prefill_ms": 30_000} if when != "amid the stream" else {"gap_ms": 100})
    with RawClient(peer.port) as client:
        client.chat(run.key, stream=True, max_tokens=200)
        eventually(lambda: bool(mock.calls()), "the engine has the call")
        if when == "amid the stream":
            client.read_events(3)
        time.sleep(0.2)
        assert not left(mock)
        leave(client)  # type: ignore[operator]
        eventually(lambda: left(mock), "the engine is left")
    eventually(lambda: gateway.control.metric("gateway_in_flight_calls") == 0, "nothing is held")


def test_an_agent_that_leaves_a_call_in_one_piece_is_on_record_as_left(peer: Peer, gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    """No engine stops such a call: it is read to its end, and what it took is known."""
    mock.script({"prefill_ms": 1_500})
    with RawClient(peer.port) as client:
        client.chat(run.key, stream=False, max_tokens=20)
        eventually(lambda: bool(mock.calls()), "the engine has the call")
        time.sleep(0.2)
        client.close()
    eventually(lambda: gateway.control.metric("gateway_in_flight_calls") == 0, "the call is settled")
    last = max(record.calls(gateway), key=lambda row: row["call_id"])
    assert (last["outcome"], last["output_tokens"]) == ("client_cancelled", 20)


def test_refusals_come_whole(peer: Peer, gateway: GatewayProcess, run: OpenedRun) -> None:
    asks = [
        post(run, body=b"{}"),
        post(run, body=b"["),
        post(OpenedRun(campaign="", run="", keys={"": "gw-x"})),
        post(run, line="POST /slots HTTP/1.1"),
        post(run, "Content-Encoding: gzip\r\n"),
        post(run, "X-Portkey-Config: x\r\n"),
    ]
    for asked in asks:
        with Wire(peer.port) as through, Wire(gateway.port) as direct:
            through.send(asked)
            direct.send(asked)
            one, other = through.answer(), direct.answer()
        assert one.status == other.status >= 400
        assert one.body == other.body
        assert kept(one) == kept(other)


def test_a_body_above_the_bound_is_refused_by_one_of_them(peer: Peer, mock: MockProcess, run: OpenedRun) -> None:
    head = post(run, f"Content-Length: {40 << 20}\r\nExpect: 100-continue\r\n", b"", length=False)
    with Wire(peer.port) as wire:
        wire.send(head)
        assert wire.answer().status in (400, 413)
    assert mock.calls() == []


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(peer: Peer, run: OpenedRun) -> None:
    with Wire(peer.port) as wire:
        wire.send(post(run, "Expect: 100-continue\r\n", STREAM)[: -len(STREAM)])
        time.sleep(0.2)
        wire.send(STREAM)
        answer = wire.answer()
        assert answer.status == 200 and answer.body.endswith(b"data: [DONE]\n\n")
