"""Cut by a closed run, a closed campaign, a revoked key: amid text, reasoning and a tool call, streaming and not. A halted campaign cuts nothing of it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest

from tests.support import record
from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, RawClient, chat_once
from tests.support.waiting import eventually

RETRY_WORDS = re.compile(r"\d|retry|again|later|overload|capacity|rate.?limit|temporar|timeout|unavailable", re.IGNORECASE)
OUTPUT = 100
AMID: dict[str, dict[str, Any]] = {
    "text": {"gap_ms": 30, "output_tokens": OUTPUT},
    "reasoning": {"gap_ms": 30, "output_tokens": OUTPUT, "reasoning_tokens": OUTPUT},
    "tool call": {"gap_ms": 30, "argument_pieces": 90, "tool_calls": [{"name": "write_file", "arguments": json.dumps({"text": "word " * 60})}]},
}
FIELDS = {"text": "content", "reasoning": "reasoning_content", "tool call": "tool_calls"}
BYTES = {"text": "text", "reasoning": "reasoning", "tool call": "tool_arguments"}
numbers = count()


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("amid"), mock.url, slots=16) as process:
        yield process
        eventually(lambda: record.reserved(process) == 0, "nothing is held")
        assert record.fits(process)


def close_the_run(gateway: GatewayProcess, run: OpenedRun) -> None:
    gateway.control.close_run(run)


def close_the_campaign(gateway: GatewayProcess, run: OpenedRun) -> None:
    gateway.control.post(f"/v1/campaigns/{run.campaign}/close", {"close_seconds": 20})


def revoke_the_key(gateway: GatewayProcess, run: OpenedRun) -> None:
    (key,) = gateway.control.get(f"/v1/keys?campaign={run.campaign}&run={run.run}")["keys"]
    gateway.control.post(f"/v1/keys/{key['key_id']}/revoke")


def begun(gateway: GatewayProcess, mock: MockProcess, client: RawClient, key: str, what: str, *, stream: bool) -> None:
    """A call of which a part is made."""
    before = len(mock.calls())
    mock.queue(AMID[what])
    client.chat(key, stream=stream, max_tokens=1_000)
    if stream:
        client.read_events(10)
    else:
        eventually(lambda: len(mock.calls()) > before and mock.calls()[before]["output_tokens"] > 5, "a part is made")


def delta(event: Any) -> dict[str, Any]:
    found: dict[str, Any] = event.json()["choices"][0]["delta"]
    return found


def is_final(error: dict[str, Any]) -> bool:
    assert (error["code"], error["type"]) == ("run_closed", "invalid_request_error")
    assert not RETRY_WORDS.search(error["message"]), error
    return True


def ends_in_the_error_event(answer: RawAnswer, what: str) -> bool:
    *sent, last, done = answer.events
    assert (answer.status, answer.complete, done.done) == (200, True, True)
    assert FIELDS[what] in delta(sent[-1]), "it was cut amid this"
    return is_final(last.json()["error"])


def is_the_final_refusal(answer: RawAnswer) -> bool:
    assert (answer.status, answer.complete, answer.headers["x-should-retry"]) == (404, True, "false")
    assert "retry-after" not in answer.headers
    return is_final(answer.json()["error"])


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("what", AMID)
@pytest.mark.parametrize("cut", [close_the_run, close_the_campaign, revoke_the_key])
def test_a_cut_says_what_it_is_amid(
    gateway: GatewayProcess, mock: MockProcess, cut: Callable[[GatewayProcess, OpenedRun], None], what: str, stream: bool
) -> None:
    run = gateway.opened(f"amid-{next(numbers)}")
    with RawClient(gateway.port) as client, ThreadPoolExecutor(1) as pool:
        begun(gateway, mock, client, run.key, what, stream=stream)
        began = time.monotonic()
        done = pool.submit(cut, gateway, run)
        answer = client.answer(timeout_s=10)
        assert time.monotonic() - began < 1.5, "the engine would take two seconds more"
        done.result(20)
    assert ends_in_the_error_event(answer, what) if stream else is_the_final_refusal(answer)
    eventually(lambda: settled(gateway, run), "it is settled")
    row, seen = settled(gateway, run), mock.calls()[-1]
    assert row["call_id"] == seen["request_id"]
    if stream:
        assert record.ending(row) == ("closed_cut", "counted")
        assert row["output_tokens"] > 0 and record.charge(row)[1] == row["output_tokens"]
        assert seen["left"] and seen["end"] == "client_left", "the engine was told"
    else:
        assert record.ending(row) == ("closed_cut", "reported")
        assert record.usage(row) == (seen["prompt_tokens"], seen["output_tokens"])
        assert seen["end"] == "completed", "it is read to its end, for it would not stop"
    delivered = gateway.control.get(f"/v1/calls/{row['call_id']}")["entries"][-1]["details"]["delivered_bytes"] if not stream else None
    assert delivered is None or delivered[BYTES[what]] > 0
    assert is_the_final_refusal(chat_once(gateway.port, run.key, stream=stream)), "one refused call more, and that is all"


def settled(gateway: GatewayProcess, run: OpenedRun) -> dict[str, Any]:
    return next((row for row in record.calls(gateway) if row["campaign"] == run.campaign and row["status"] == "settled"), {})


def test_a_halted_campaign_cuts_nothing_amid_anything(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("halted")
    with ExitStack() as stack:
        clients = {}
        for what in AMID:
            for stream in (True, False):
                client = clients[what, stream] = stack.enter_context(RawClient(gateway.port))
                begun(gateway, mock, client, run.key, what, stream=stream)
        assert gateway.control.get("/v1/status")["in_flight"] == len(clients)
        gateway.control.post("/v1/campaigns/halted/halt", {"reason": "a look"})
        for (what, stream), client in clients.items():
            answer = client.answer(timeout_s=20)
            assert (answer.status, answer.complete) == (200, True), what
            assert b"error" not in answer.body
            assert not stream or (answer.events[-1].done and FIELDS[what] in delta(answer.events[-3]))
    rows = [row for row in record.calls(gateway) if row["campaign"] == "halted"]
    assert [row["source"] for row in rows] == ["reported"] * len(clients)
    assert {row["outcome"] for row in rows} == {"completed"}
