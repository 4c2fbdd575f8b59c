"""The ledger cannot be written, tried by taking the file's room away from the running process: no answer looks finished, and nothing is forwarded."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import GatewayMaker
from tests.support import record
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.processes import HASTY
from tests.support.raw_http import RawAnswer, RawClient, chat_once
from tests.support.waiting import eventually

LIMITS = {"run": {"requests": 1_000, "output_tokens": 1_000_000}}
SLOW = {"gap_ms": 30}
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@contextmanager
def unwritable(gateway: GatewayProcess) -> Iterator[None]:
    """No file of the process may grow past its first byte: each write of the ledger fails, as on a full disk."""
    pid = gateway.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        if gateway.process.returncode is None:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


def busy(gateway: GatewayProcess) -> int:
    number: int = gateway.control.get("/v1/status")["upstreams"][0]["busy"]
    return number


def is_refused(answer: RawAnswer) -> bool:
    assert (answer.status, answer.json()["error"]["code"]) == (503, "ledger_unavailable"), answer
    return True


def the_call(engine: MockProcess) -> dict[str, Any]:
    eventually(engine.calls, "the engine has the call")
    return engine.calls()[0]


@BOTH
def test_an_answer_whose_settlement_cannot_be_written_is_reset_before_its_end(gateways: GatewayMaker, mock_process: MockProcess, stream: bool) -> None:
    mock_process.script(SLOW)
    gateway = gateways(mock_process.url, policy=LIMITS)
    key = gateway.opened().key
    with RawClient(gateway.port) as client:
        client.chat(key, stream=stream, max_tokens=20)
        the_call(mock_process)
        with unwritable(gateway):
            answer = client.answer()
            assert client.closed == "reset" and not answer.complete
            if stream:
                assert len(answer.events) >= 20 and not any(event.done for event in answer.events), "all but the end"
            else:
                assert not answer.status, "not a byte"
            assert busy(gateway) == 1 and record.reserved(gateway) > 0, "the reservation goes on holding"
            assert is_refused(chat_once(gateway.port, key)) and is_refused(chat_once(gateway.port, key, stream=True))
            time.sleep(0.5)
            assert is_refused(chat_once(gateway.port, key)), "it stays so while it cannot be written"
        row = record.closed_call(gateway)
    assert record.ending(row) == ("not_delivered", "reported")
    assert record.usage(row) == record.charge(row) == (the_call(mock_process)["prompt_tokens"], 20)
    assert len(mock_process.calls()) == 1, "none was forwarded meanwhile"
    eventually(lambda: (busy(gateway), record.reserved(gateway)) == (0, 0), "nothing is held")
    eventually(lambda: chat_once(gateway.port, key, max_tokens=2).status == 200, "calls go on once it can be written again")
    assert gateway.stop() == 0
    assert record.fits(gateway)


@BOTH
def test_a_call_whose_reservation_cannot_be_written_is_not_forwarded(gateways: GatewayMaker, mock_process: MockProcess, stream: bool) -> None:
    gateway = gateways(mock_process.url, policy=LIMITS)
    key = gateway.opened().key
    with unwritable(gateway):
        assert is_refused(chat_once(gateway.port, key, stream=stream))
        assert is_refused(chat_once(gateway.port, key, stream=stream))
        assert busy(gateway) == 0
    eventually(lambda: chat_once(gateway.port, key, stream=stream, max_tokens=2).status == 200, "calls go on once it can be written again")
    assert len(mock_process.calls()) == 1
    assert [row["outcome"] for row in record.calls(gateway) if row["status"] != "voided"] == ["length"]
    assert record.reserved(gateway) == 0
    assert record.fits(gateway)


def test_with_less_than_min_free_bytes_nothing_is_forwarded(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    gateway = gateways(mock_process.url)
    key = gateway.opened().key
    assert gateway.stop() == 0
    gateway.config.write_text(gateway.config.read_text().replace("min_free_bytes = 0", f"min_free_bytes = {1 << 52}"))
    gateway.start()
    assert is_refused(chat_once(gateway.port, key)) and is_refused(chat_once(gateway.port, key, stream=True))
    assert not mock_process.calls() and not record.calls(gateway)


def test_a_process_that_ends_while_its_ledger_cannot_be_written_loses_only_what_it_could_not_settle(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    mock_process.script(SLOW)
    gateway = gateways(mock_process.url, policy=LIMITS, settings={"bounds": {"shutdown_seconds": 1}})
    key = gateway.opened().key
    assert chat_once(gateway.port, key, max_tokens=2).complete
    with RawClient(gateway.port) as client, unwritable(gateway):
        client.chat(key, stream=True, max_tokens=400)
        assert is_refused(client.answer())
    with RawClient(gateway.port) as client:
        eventually(lambda: chat_once(gateway.port, key, max_tokens=2).status == 200, "it can be written again")
        client.chat(key, stream=True, max_tokens=400)
        client.read_events(3)
        with unwritable(gateway):
            gateway.stop(timeout_s=40)
            answer = client.answer()
            assert not answer.complete and not any(event.done for event in answer.events)
    gateway.start()
    *settled, last = record.calls(gateway)
    assert {row["outcome"] for row in settled if row["status"] != "voided"} == {"length"}
    assert record.ending(last) == ("lost", "unknown")
    assert record.charge(last) == (last["reserved_input_tokens"], 400)
    assert record.reserved(gateway) == 0
    assert record.fits(gateway)


@BOTH
def test_a_call_that_cannot_be_measured_is_closed_all_the_same_and_its_answer_reset(gateways: GatewayMaker, mock_process: MockProcess, stream: bool) -> None:
    """A fault of the gateway's own: the figure is lost, not the end of the reservation."""
    gateway = gateways(mock_process.url, policy=LIMITS, env={**HASTY, "GATEWAY_BROKEN": "settle_terms"})
    run = gateway.opened()
    with RawClient(gateway.port) as client:
        client.chat(run.key, stream=stream, max_tokens=20)
        answer = client.answer()
        assert client.closed == "reset" and not answer.complete and b"DONE" not in answer.body
    row = record.closed_call(gateway)
    assert record.ending(row) == ("not_delivered", "unknown") and "unmeasured" in row["flags"]
    assert record.charge(row) == (row["reserved_input_tokens"], 20)
    assert (busy(gateway), record.reserved(gateway)) == (0, 0)
    assert gateway.control.close_run(run)["receipt"], "nothing keeps the run from closing"
    assert record.fits(gateway)


@pytest.mark.parametrize("place", ["below a file", "a folder", "no ledger"])
def test_a_gateway_does_not_begin_where_its_ledger_cannot_be(tmp_path: Path, mock_process: MockProcess, place: str) -> None:
    gateway = GatewayProcess(tmp_path / "gateway", mock_process.url)
    if place == "below a file":
        gateway.ledger.write_text("")
        path = gateway.ledger / "gateway.ledger"
    elif place == "a folder":
        gateway.ledger.mkdir()
        path = gateway.ledger
    else:
        gateway.ledger.write_bytes(b"something else " * 1_000)
        path = gateway.ledger
    gateway.config.write_text(gateway.config.read_text().replace(str(gateway.ledger), str(path)))
    with pytest.raises(AssertionError) as failed, gateway:
        pass
    assert "(status 0)" not in str(failed.value) and "Traceback" not in str(failed.value), failed.value
    assert str(path) in str(failed.value).partition("its output:")[2], "it says which"
