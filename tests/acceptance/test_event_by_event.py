"""When a stream's bytes go out: each event before the engine has written the next, the terminal event once the call is settled, comments into a silence.

Both sides' moments are read from one machine's monotonic clock: the engine's just before it writes, the client's just after it read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.ledger.reading import LedgerReader
from tests.support import sse
from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawClient, chat_once

KEEPALIVE_S = 1
AFTER_TERMINAL_S = 1.0
GAP_MS = 250
MS = 1_000_000


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    settings: Any = {"bounds": {"keepalive_after_s": KEEPALIVE_S}, "upstreams": {"engine": {"timeouts": {"first_byte_s": 2}}}}
    with GatewayProcess(tmp_path_factory.mktemp("events"), mock.url, settings=settings) as process:
        yield process


@pytest.fixture(scope="module")
def run(gateway: GatewayProcess) -> OpenedRun:
    return gateway.opened("events", "r1")


def chunk(text: str, finish: str = "") -> bytes:
    reason = f'"{finish}"' if finish else "null"
    return b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":%b}]}\n\n' % (text.encode(), reason.encode())


USAGE = b'data: {"id":"x","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":4,"total_tokens":11}}\n\n'
DONE = b"data: [DONE]\n\n"
EVENTS = [chunk("one"), chunk("two"), chunk("three"), chunk("four"), chunk("", "stop")]


def sent_moments(mock: MockProcess) -> list[int]:
    """Monotonic ns of each write of the newest call."""
    return [one[0] for one in mock.calls()[-1]["sent"]]


def row_of(gateway: GatewayProcess, call_id: str) -> dict[str, Any]:
    with LedgerReader(gateway.ledger) as reader:
        [row] = reader.query("SELECT * FROM calls WHERE call_id = :id", id=call_id)
    return row


def raw(*pieces: bytes, **more: object) -> dict[str, object]:
    return {"raw": [piece.decode() for piece in pieces], **more}


@pytest.mark.parametrize("shift", [0, 9], ids=["whole", "each_write_ends_inside_the_next_event"])
def test_an_event_goes_out_before_the_engine_has_written_the_next(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, shift: int) -> None:
    whole = b"".join(EVENTS)
    edges = [sum(map(len, EVENTS[: number + 1])) + shift for number in range(len(EVENTS) - 1)]
    pieces = [whole[one:two] for one, two in zip([0, *edges], [*edges, len(whole)], strict=True)]
    mock.script(raw(*pieces, USAGE, DONE, gap_ms=GAP_MS))
    with RawClient(gateway.port) as client:
        client.chat(run.key, stream=True, max_tokens=9)
        answer = client.answer()
        assert answer.body == whole + DONE
        sent = sent_moments(mock)
        for number, event in enumerate(EVENTS):
            came = client.moment_of(event).monotonic_ns
            assert sent[number] < came < sent[number + 1], f"event {number} came {(came - sent[number]) / MS:.1f} ms after it was written"


def test_the_head_of_the_answer_comes_with_the_first_event_and_a_later_comment_at_once(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.script(raw(b": early\n\n", chunk("one"), b": late\n\n", chunk("two", "stop"), USAGE, DONE, gap_ms=GAP_MS))
    with RawClient(gateway.port) as client:
        client.chat(run.key, stream=True, max_tokens=9)
        answer = client.answer()
        sent = sent_moments(mock)
        assert client.got[0].monotonic_ns > sent[1]  # nothing before the first event: an error could still have been a plain answer
        assert sent[2] < client.moment_of(b": late\n\n").monotonic_ns < sent[3]
    assert answer.body == b": early\n\n" + chunk("one") + b": late\n\n" + chunk("two", "stop") + DONE


def test_the_terminal_event_is_held_until_the_call_is_settled(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    before = chat_once(gateway.port, run.key, max_tokens=1)
    assert row_of(gateway, before.headers["x-request-id"])["status"] == "settled"  # a first look takes a second on a busy machine
    mock.script({"output_tokens": 3, "finish_before_done_ms": 300})
    with RawClient(gateway.port) as client:
        client.chat(run.key, stream=True, max_tokens=9, stream_options={"include_usage": True})
        so_far = client.read_events(6)  # role, three tokens, finish, usage
        assert not any(event.done for event in so_far.events)
        assert row_of(gateway, so_far.headers["x-request-id"])["status"] == "reserved"
        answer = client.answer()
        row = row_of(gateway, answer.headers["x-request-id"])
    assert answer.events[-1].done
    assert (row["status"], row["outcome"], row["source"]) == ("settled", "completed", "reported")


@pytest.mark.parametrize("terminal", [DONE, b'data: {"error":{"message":"broken","type":"server_error"}}\n\n'], ids=["done", "error"])
def test_an_engine_that_does_not_end_its_body_holds_the_terminal_event_back_for_a_second_at_most(
    gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, terminal: bytes
) -> None:
    mock.script(raw(chunk("one"), chunk("two", "stop"), USAGE, terminal, gap_ms=50, die="hang"))
    with RawClient(gateway.port) as client:
        client.chat(run.key, stream=True, max_tokens=9)
        answer = client.answer()
        held_s = (client.moment_of(terminal).monotonic_ns - sent_moments(mock)[3]) / 1e9
    assert answer.complete
    assert AFTER_TERMINAL_S * 0.9 < held_s < AFTER_TERMINAL_S + 1.5
    row = row_of(gateway, answer.headers["x-request-id"])
    assert row["outcome"] == ("completed" if terminal == DONE else "engine_error")
    assert (row["source"], row["output_tokens"]) == ("reported", 4)


def test_usage_that_comes_behind_the_terminal_event_is_the_reading(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.script(raw(chunk("one"), chunk("two", "stop"), DONE, USAGE, gap_ms=100))
    answer = chat_once(gateway.port, run.key, stream=True, max_tokens=9)
    assert answer.body == chunk("one") + chunk("two", "stop") + DONE
    row = row_of(gateway, answer.headers["x-request-id"])
    assert (row["source"], row["input_tokens"], row["output_tokens"]) == ("reported", 7, 4)


def test_a_whole_answer_comes_when_it_is_settled_and_not_a_second_later(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.script({})
    started = time.monotonic()
    answer = chat_once(gateway.port, run.key, max_tokens=9)
    assert time.monotonic() - started < AFTER_TERMINAL_S
    assert row_of(gateway, answer.headers["x-request-id"])["status"] == "settled"


def test_a_stream_whose_engine_is_silent_gets_comments_and_then_its_events(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.script({"prefill_ms": 1_600, "output_tokens": 2})
    with RawClient(gateway.port) as client:
        client.chat(run.key, stream=True, max_tokens=9)
        answer = client.answer()
        sent = sent_moments(mock)
        assert client.got[0].monotonic_ns < sent[0], "the first comment comes while the engine is silent"
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/event-stream")
    assert sse.comments(answer.body) == 1
    assert sse.text(answer.body) and answer.events[-1].done
    assert row_of(gateway, answer.headers["x-request-id"])["outcome"] == "completed"


def test_a_call_that_does_not_stream_gets_no_comments(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.script({"prefill_ms": 1_300, "output_tokens": 2})
    answer = chat_once(gateway.port, run.key, max_tokens=9)
    assert answer.status == 200 and answer.json()["choices"]


@pytest.mark.parametrize(
    ("script", "outcomes"),
    [
        ({"prefill_ms": 1_300, "die": "500"}, {"engine_error"}),
        ({"prefill_ms": 1_300, "die": "error_event"}, {"engine_error"}),
        ({"prefill_ms": 1_300, "die": "eof_before_headers"}, {"engine_died", "engine_closed"}),  # closed: the connection had served calls before
        ({"prefill_ms": 1_300, "die": "reset_before_headers"}, {"engine_died", "engine_closed"}),
        ({"die": "hang_before_headers"}, {"engine_timeout"}),
    ],
    ids=["status_500", "error_event", "eof", "reset", "timeout"],
)
def test_what_goes_wrong_after_a_comment_is_an_error_event(
    gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, script: dict[str, object], outcomes: set[str]
) -> None:
    mock.script({**script, "output_tokens": 2})
    answer = chat_once(gateway.port, run.key, stream=True, max_tokens=9)
    assert (answer.status, answer.complete) == (200, True)
    assert sse.comments(answer.body) >= 1
    error = sse.error(answer.body)
    assert error is not None, answer.body
    assert answer.events[-1].done or error["type"] == "server_error"
    assert not sse.unfinished(answer.body)
    row = row_of(gateway, answer.headers["x-request-id"])
    assert row["outcome"] in outcomes and row["source"] == "unknown"
    if "engine_error" not in outcomes:  # our own words: the code is the outcome
        assert error["code"] == row["outcome"]


def test_a_run_that_is_closed_after_a_comment_ends_its_stream_with_an_error_event(gateway: GatewayProcess, mock: MockProcess) -> None:
    mock.script({"prefill_ms": 10_000})
    closing = gateway.opened("events", "closing")
    with RawClient(gateway.port) as client:
        client.chat(closing.key, stream=True, max_tokens=9)
        client.read_for(KEEPALIVE_S + 0.4)
        assert sse.comments(client.so_far().body) == 1
        gateway.control.close_run(closing)
        answer = client.answer(timeout_s=5)
    assert sse.error(answer.body)["code"] == "run_closed"
    assert answer.events[-1].done
    assert row_of(gateway, answer.headers["x-request-id"])["outcome"] == "closed_cut"
