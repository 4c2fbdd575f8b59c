"""What a connection may hold, and how long, before and behind a request: each bound by its name, on a process whose bounds are small."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import CHAT
from tests.support.wire import Wire, request

BOUNDS: Any = {"head_seconds": 1, "body_seconds": 2, "idle_seconds": 4, "max_head_bytes": 8_000, "max_connections": 20}
BODY = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}).encode()
TOLD = 64
"""Connections above the bound that are answered all the same."""


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("bounds"), mock.url, settings={"bounds": BOUNDS}) as process:
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.process.output


@pytest.fixture(scope="module")
def run(gateway: GatewayProcess) -> OpenedRun:
    return gateway.opened("c1", "r1")


@pytest.fixture
def call(run: OpenedRun) -> bytes:
    return request("POST", CHAT, {"Authorization": f"Bearer {run.key}"}, BODY)


def dripped(wire: Wire, data: bytes, *, every_s: float = 0.05) -> float:
    """A byte at a time until it is out or the other side ends it; the seconds that took."""
    began = time.monotonic()
    for at in range(len(data)):
        try:
            wire.send(data[at : at + 1])
        except (BrokenPipeError, ConnectionResetError):
            break
        time.sleep(every_s)
        if wire.has_more():
            break
    return time.monotonic() - began


def test_a_head_that_comes_too_slowly_is_ended_however_steadily_it_comes(gateway: GatewayProcess, mock: MockProcess, call: bytes) -> None:
    mock.clear()
    before = gateway.control.metric("gateway_refusals_total", code="bad_request")
    for first in (b"", call):  # also where one was answered before
        with Wire(gateway.port) as wire:
            if first:
                wire.send(first)
                assert wire.answer().status == 200
            took = dripped(wire, call)
            answer = wire.answer()
            assert (answer.status, answer.json()["error"]["code"]) == (408, "bad_request")
            assert answer.headers["connection"] == "close" and answer.headers["server"] == "model-gateway"
            assert answer.headers["x-request-id"] == answer.headers["request-id"]
            assert wire.is_closed()
            assert 0.5 < took < 3.5, "sooner than an idle connection"
    assert gateway.control.metric("gateway_refusals_total", code="bad_request") == before + 2
    assert len(mock.calls()) == 1


def test_a_head_in_time_is_none_that_is_late_and_the_next_one_has_all_its_time(gateway: GatewayProcess, call: bytes) -> None:
    with Wire(gateway.port) as wire:
        for _ in range(3):
            wire.send(call[:40])
            time.sleep(0.6)
            wire.send(call[40:])
            assert wire.answer().status == 200


def test_a_body_that_comes_too_slowly_is_refused_however_steadily_it_comes(gateway: GatewayProcess, mock: MockProcess, call: bytes) -> None:
    mock.clear()
    whole = call.replace(b"Content-Length: %d" % len(BODY), b"Content-Length: 100000") + b" " * 1_000
    at = whole.index(b"\r\n\r\n") + 4
    with Wire(gateway.port) as wire:
        wire.send(whole[:at])
        took = dripped(wire, whole[at:])
        answer = wire.answer()
        assert (answer.status, answer.json()["error"]["code"]) == (400, "body_invalid")
        assert 1.5 < took < 10
    assert mock.calls() == []


def test_a_connection_on_which_nothing_comes_is_closed(gateway: GatewayProcess, call: bytes) -> None:
    for first in (b"", call):
        with Wire(gateway.port) as wire:
            if first:
                wire.send(first)
                assert wire.answer().status == 200
            began = time.monotonic()
            assert wire.is_closed(within_s=10)
            assert time.monotonic() - began > 2


@pytest.mark.parametrize("flood", [b"X-Note: " + b"a" * 900 + b"\r\n", b"\r\n", b"a" * 700], ids=["headers", "blank lines", "one line"])
def test_a_head_is_not_held_beyond_its_bound(gateway: GatewayProcess, mock: MockProcess, call: bytes, flood: bytes) -> None:
    mock.clear()
    start = b"" if flood == b"\r\n" else call[: call.index(b"\r\n") + 2]
    with Wire(gateway.port) as wire:
        wire.send(start)
        for _ in range(200):
            try:
                wire.send(flood * max(1, 500 // len(flood)))
            except (BrokenPipeError, ConnectionResetError):
                break
            time.sleep(0.002)
            if wire.has_more():
                break
        else:
            pytest.fail("all of it was taken")
        answer = wire.answer()
        assert (answer.status, answer.json()["error"]["code"]) == (400, "bad_request")
    assert mock.calls() == []


def test_of_connections_too_many_the_first_are_told_and_the_rest_is_closed_at_once(gateway: GatewayProcess, run: OpenedRun) -> None:
    """They say nothing: no request has to come for a connection to cost something."""
    silent = [Wire(gateway.port) for _ in range(BOUNDS["max_connections"])]
    told = [Wire(gateway.port) for _ in range(TOLD)]
    try:
        for wire in told[:2]:
            wire.send(request("GET", "/v1/models", {"x-api-key": run.key}))
            assert wire.answer().json()["error"]["code"] == "overloaded"
        more = [Wire(gateway.port) for _ in range(TOLD // 2)]
        ended = [wire.is_closed(within_s=1) for wire in more[10:14]]
        assert all(ended), ended
        assert not silent[0].has_more()
    finally:
        for wire in (*silent, *told, *more):
            wire.__exit__()
    for _ in range(50):  # those that left are gone soon; until then a new one is told or closed as they were
        with Wire(gateway.port) as wire:
            try:
                wire.send(request("GET", "/v1/models", {"x-api-key": run.key}))
                if wire.answer().status == 200:
                    break
            except (AssertionError, OSError):
                pass  # closed at once
        time.sleep(0.1)
    else:
        pytest.fail("places are not free again")
