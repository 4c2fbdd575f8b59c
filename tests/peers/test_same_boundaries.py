"""Where one request ends and the next begins: the peer in front and the gateway behind it must see the same, whatever a client sends.

For each way of framing: as many requests came to the gateway's routing as the peer believes to have had answered there, as many calls came to the engine as
were answered with 200, and the next plain call, on the same connection and on another, gets its own answer.
"""

from __future__ import annotations

import json
import time

import pytest

from tests.peers.peer import Peer
from tests.support.control import OpenedRun
from tests.support.framings import BODY, SMUGGLED, hidden, malformed, odd, post
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer
from tests.support.wire import Wire

NOBODY = OpenedRun(campaign="", run="", keys={"": ""})
CANDIDATES = list(malformed(NOBODY) | odd(NOBODY))
Counts = tuple[int, int, int, int]
COUNTERS = ("gateway_calls_total", "gateway_undeclared_total", "gateway_unauthorized_total", "gateway_refusals_total")
OWN_TOKENS = 5
"""The next call asks for so many, no other does: its answer is known by it."""
OWN = BODY.replace(b'"max_tokens": 2', b'"max_tokens": %d' % OWN_TOKENS)


def own(run: OpenedRun) -> bytes:
    return post(run, body=OWN)


def is_own(answer: RawAnswer) -> bool:
    return answer.status == 200 and answer.json()["usage"]["completion_tokens"] == OWN_TOKENS


def routed(gateway: GatewayProcess) -> int:
    """Requests that came to the gateway's routing, or that it refused before."""
    rows = (line.rpartition(" ") for line in gateway.control.text("/metrics").splitlines() if line.startswith(COUNTERS))
    return round(sum(float(value) for head, _, value in rows if head.partition("{")[0] in COUNTERS))


def count(peer: Peer, gateway: GatewayProcess, mock: MockProcess) -> Counts:
    """Answered by the gateway as the peer has it, forwarded by the peer, routed by the gateway, calls at the engine."""
    seen = peer.seen()
    return sum(one.answered for one in seen), sum(one.forwarded for one in seen), routed(gateway), len(mock.calls())


def quiet(peer: Peer, gateway: GatewayProcess, mock: MockProcess, since: Counts | None = None) -> Counts:
    """Once nothing is counted any more and, `since` then, both sides agree; what they say at last where they don't: logs and metrics come a moment late."""
    deadline = time.monotonic() + 3
    last, same = count(peer, gateway, mock), 0
    while (same < 2 or (since is not None and last[0] - since[0] != last[2] - since[2])) and time.monotonic() < deadline:
        time.sleep(0.04)
        now = count(peer, gateway, mock)
        same = same + 1 if now == last else 0
        last = now
    return last


def next_own(wire: Wire, head: bool) -> list[RawAnswer]:
    """Answers on the same connection up to the one of a plain call that is sent now, or to its end."""
    answers: list[RawAnswer] = []
    try:
        while not wire.closed and not (answers and is_own(answers[-1])):
            answers.append(wire.answer(head=head and not answers))
    except AssertionError:
        assert wire.closed, "neither an answer nor an end"
    return answers


@pytest.mark.parametrize("name", CANDIDATES)
def test_both_sides_see_the_same_requests(peer: Peer, gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, name: str) -> None:
    candidate = (malformed(run) | odd(run))[name].replace(b"/v1/models", b"/undeclared")
    mock.clear()
    before, lines = quiet(peer, gateway, mock), len(peer.seen())
    with Wire(peer.port, timeout_s=8) as wire:
        try:
            wire.send(candidate)
            time.sleep(0.05)
            wire.send(own(run))
        except (BrokenPipeError, ConnectionResetError):
            pass
        here = next_own(wire, head=name == "a call in a HEAD")
    with Wire(peer.port) as other:  # the peer's own connection to the gateway is used again
        other.send(own(run))
        assert is_own(other.answer()), "the next caller got another's answer"
    answered, forwarded, came, calls = (now - then for now, then in zip(quiet(peer, gateway, mock, before), before, strict=True))
    assert answered <= came <= forwarded
    assert answered == came, f"{peer.name} had {answered} requests answered, the gateway saw {came}"
    assert calls == len([one for one in peer.seen()[lines:] if (one.line, one.status, one.answered) == ("POST", 200, True)])
    texts = [call["body"] for call in mock.calls()]
    assert sum(SMUGGLED in text for text in texts) <= sum(answer.status == 200 for answer in here), "a call that nobody sent"
    assert all(json.loads(text)["messages"] for text in texts)


def test_a_call_behind_another_is_a_call_and_is_answered_as_one(peer: Peer, mock: MockProcess, run: OpenedRun) -> None:
    """The check above can fail: a call that is sent is seen."""
    mock.clear()
    with Wire(peer.port) as wire:
        wire.send(post(run) + own(run))
        assert wire.answer().status == 200
        assert is_own(wire.answer())
        wire.send(hidden(run))
        assert wire.answer().status == 200
    assert len(mock.calls()) == 3 and SMUGGLED in json.dumps(mock.calls()[-1]["body"])
