"""Engines fail in many ways: for each, what the agent sees and what the ledger says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.ledger.reading import LedgerReader
from tests.conftest import GatewayMaker
from tests.support import record, sse
from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, RawClient, chat_once
from tests.support.waiting import eventually

TIMEOUTS = {"connect_s": 2, "first_byte_s": 1, "between_chunks_s": 1, "whole_s": 4}
PROMPT, NOTHING, DELIVERED = "the prompt", "nothing", "what was delivered"


class Place:
    """One gateway and one engine for all cases."""

    def __init__(self, gateway: GatewayProcess, engine: MockProcess, run: OpenedRun) -> None:
        self.gateway, self.engine, self.run = gateway, engine, run

    def ask(self, script: object, *, stream: bool, max_tokens: int = 20) -> tuple[RawAnswer, dict[str, Any]]:
        self.engine.script(script)
        answer = chat_once(self.gateway.port, self.run.key, stream=stream, max_tokens=max_tokens)
        call = answer.headers["x-request-id"]
        (row,) = [row for row in record.calls(self.gateway) if row["call_id"] == call]
        return answer, row

    def details(self, row: dict[str, Any]) -> dict[str, Any]:
        with LedgerReader(self.gateway.ledger) as reader:
            (entry,) = reader.query("SELECT body FROM journal WHERE number = :number", number=row["closing_number"])
        details: dict[str, Any] = json.loads(str(entry["body"]))["details"]
        return details


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    settings = {"upstreams": {"engine": {"timeouts": TIMEOUTS}}, "bounds": {"max_response_bytes": 4_000}}
    with MockProcess() as engine, GatewayProcess(tmp_path_factory.mktemp("failures"), engine.url, settings=settings) as gateway:
        place = Place(gateway, engine, gateway.opened())
        place.ask({}, stream=True)
        yield place
        eventually(lambda: record.reserved(gateway) == 0, "nothing is held")
        assert gateway.stop() == 0
        assert record.fits(gateway)


def charged(row: dict[str, Any], what: str) -> bool:
    wanted = {PROMPT: (row["reserved_input_tokens"], 0), NOTHING: (0, 0), DELIVERED: (row["reserved_input_tokens"], row["output_tokens"])}[what]
    assert (record.charge(row), row["charged_requests"]) == (wanted, 1), row
    return True


def is_an_error(answer: RawAnswer, status: int, code: str | int) -> bool:
    assert (answer.status, answer.complete) == (status, True), answer
    assert answer.json()["error"]["code"] == code, answer.body
    assert "x-should-retry" not in answer.headers, "it may be tried again"
    return True


def ends_with_an_error(answer: RawAnswer, code: str | int) -> bool:
    """As an event behind what was delivered, then the end of the stream."""
    assert answer.status == 200 and answer.complete
    *delivered, last, done = answer.events
    assert delivered and done.done and last.json()["error"]["code"] == code
    assert last.json()["error"]["type"] == "server_error"
    assert sse.unfinished(answer.body) == b"" and sse.finish_reason(answer.body) is None
    return True


BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def test_an_engine_that_refuses_the_connection_is_a_502_and_the_reservation_is_void(gateways: GatewayMaker) -> None:
    with MockProcess() as engine:
        gateway = gateways(engine.url, policy={"run": {"requests": 1, "output_tokens": 100}})
        run = gateway.opened()
        assert chat_once(gateway.port, run.key, max_tokens=1).status == 200, "the model's overhead is known from here on"
    run = gateway.opened(run="r2")
    answer = chat_once(gateway.port, run.key, max_tokens=20)
    assert is_an_error(answer, 502, "engine_unreachable")
    row = record.calls(gateway)[-1]
    assert (row["status"], row["outcome"], record.usage(row)) == ("voided", None, (None, None)), row
    assert not row["charged_requests"] and not any(record.charge(row))
    assert record.reserved(gateway) == 0
    assert record.entries(gateway, "void") == 1
    assert record.fits(gateway)


@BOTH
@pytest.mark.parametrize("die", ["reset_before_headers", "eof_before_headers"])
def test_an_engine_that_breaks_off_before_its_answer_died_or_its_pooled_connection_was_dead(place: Place, stream: bool, die: str) -> None:
    place.ask({}, stream=False)
    answer, row = place.ask({"die": die}, stream=stream)
    assert is_an_error(answer, 502, "engine_closed")
    assert record.ending(row) == ("engine_closed", "unknown") and charged(row, PROMPT)
    for _ in range(8):  # the dead one has left the pool, and there are not many others: soon one is fresh
        answer, row = place.ask({"die": die}, stream=stream)
        if row["outcome"] != "engine_closed":
            break
    assert is_an_error(answer, 502, "engine_died")
    assert record.ending(row) == ("engine_died", "unknown") and charged(row, PROMPT)
    assert record.usage(row) == (None, None)


@BOTH
@pytest.mark.parametrize("die", ["400", "404", "429", "503"])
def test_an_engine_that_refuses_the_work_is_charged_one_request_and_no_token(place: Place, stream: bool, die: str) -> None:
    answer, row = place.ask({"die": die}, stream=stream)
    assert (answer.status, answer.complete) == (int(die), True) and answer.json()["error"]
    assert record.ending(row) == ("engine_refused", "none") and charged(row, NOTHING)
    assert record.usage(row) == (0, 0)


@BOTH
def test_an_engine_that_does_not_know_the_gateway_is_the_operators_fault(place: Place, stream: bool) -> None:
    answer, row = place.ask({"die": "401"}, stream=stream)
    assert is_an_error(answer, 502, "upstream_auth")
    assert record.ending(row) == ("engine_refused", "none") and charged(row, NOTHING)


@BOTH
def test_another_5xx_is_passed_on_and_charged_the_prompt(place: Place, stream: bool) -> None:
    answer, row = place.ask({"die": "500"}, stream=stream)
    assert is_an_error(answer, 500, 500)
    assert record.ending(row) == ("engine_error", "unknown") and charged(row, PROMPT)
    assert record.usage(row) == (None, None)


def first_event(error: dict[str, Any]) -> dict[str, Any]:
    return {"raw": [f"data: {json.dumps({'error': error})}\n\n"]}


@pytest.mark.parametrize(("code", "outcome"), [(503, ("engine_refused", "none")), (429, ("engine_refused", "none")), (500, ("engine_error", "unknown"))])
def test_an_error_as_the_first_event_is_a_plain_answer_with_its_code(place: Place, code: int, outcome: tuple[str, str]) -> None:
    answer, row = place.ask(first_event({"code": code, "message": "no", "type": "server_error"}), stream=True)
    assert is_an_error(answer, code, code)
    assert answer.headers["content-type"].startswith("application/json")
    assert record.ending(row) == outcome and charged(row, NOTHING if outcome[1] == "none" else PROMPT)


def test_an_error_without_a_code_as_the_first_event_is_a_502(place: Place) -> None:
    answer, row = place.ask(first_event({"message": "no", "type": "server_error"}), stream=True)
    assert (answer.status, answer.complete) == (502, True)
    assert record.ending(row) == ("engine_error", "unknown") and charged(row, PROMPT)


def test_a_json_error_in_a_200_that_does_not_stream_is_a_plain_error(place: Place) -> None:
    answer, row = place.ask({"raw": ['{"error":{"message":"no","type":"server_error"}}'], "raw_type": "application/json"}, stream=False)
    assert (answer.status, answer.complete) == (502, True)
    assert record.ending(row) == ("engine_error", "unknown") and charged(row, PROMPT)


@pytest.mark.parametrize("die", ["reset", "eof", "half_event", "no_done"])
def test_an_engine_that_dies_in_the_middle_of_a_stream_ends_in_an_error_event(place: Place, die: str) -> None:
    answer, row = place.ask({"die": die, "die_after": 6}, stream=True)
    assert ends_with_an_error(answer, "engine_died")
    assert record.ending(row) == ("engine_died", "counted") and charged(row, DELIVERED)
    assert 1 <= row["output_tokens"] <= 20


def test_an_error_event_in_the_middle_of_a_stream_is_passed_on_as_its_end(place: Place) -> None:
    answer, row = place.ask({"die": "error_event", "die_after": 6}, stream=True)
    assert answer.status == 200 and answer.complete and sse.error(answer.body) and sse.finish_reason(answer.body) is None
    assert record.ending(row) == ("engine_error", "counted") and charged(row, DELIVERED)


@pytest.mark.parametrize("die", ["reset", "eof"])
def test_an_engine_that_dies_in_the_middle_of_a_whole_answer_is_a_502(place: Place, die: str) -> None:
    answer, row = place.ask({"die": die}, stream=False)
    assert is_an_error(answer, 502, "engine_died")
    assert record.ending(row) == ("engine_died", "unknown") and charged(row, PROMPT)


@BOTH
@pytest.mark.parametrize("script", [{"die": "hang_before_headers"}, {"prefill_ms": 3_000}], ids=["hangs", "slow"])
def test_an_engine_that_gives_no_first_byte_in_time_is_a_504(place: Place, stream: bool, script: dict[str, Any]) -> None:
    answer, row = place.ask(script, stream=stream)
    assert is_an_error(answer, 504, "engine_timeout")
    assert record.ending(row) == ("engine_timeout", "unknown") and charged(row, PROMPT)
    assert place.details(row)["phase"] == "first_byte"


def test_an_engine_that_falls_silent_in_the_middle_of_a_stream_ends_in_an_error_event(place: Place) -> None:
    answer, row = place.ask({"die": "hang", "die_after": 6}, stream=True)
    assert ends_with_an_error(answer, "engine_timeout")
    assert record.ending(row) == ("engine_timeout", "counted") and charged(row, DELIVERED)
    assert place.details(row)["phase"] == "between_chunks"


def test_an_engine_that_falls_silent_in_the_middle_of_a_whole_answer_is_a_504(place: Place) -> None:
    answer, row = place.ask({"die": "hang"}, stream=False)
    assert is_an_error(answer, 504, "engine_timeout")
    assert record.ending(row) == ("engine_timeout", "unknown") and charged(row, PROMPT)
    assert place.details(row)["phase"] == "between_chunks"


def test_an_engine_that_never_comes_to_an_end_is_cut_off_by_the_time_out_of_the_whole(place: Place) -> None:
    answer, row = place.ask({"gap_ms": 200}, stream=True, max_tokens=400)
    assert ends_with_an_error(answer, "engine_timeout")
    assert record.ending(row) == ("engine_timeout", "counted") and charged(row, DELIVERED)
    assert place.details(row)["phase"] == "whole"


LARGE = [json.dumps({"choices": [{"message": {"content": "x" * 6_000}}]})[:-2], "x" * 2_000]


@pytest.mark.parametrize("die", ["reset", "eof", "hang"])
def test_an_answer_too_large_to_hold_that_breaks_off_is_a_broken_connection(place: Place, die: str) -> None:
    place.engine.script({"raw": LARGE, "raw_type": "application/json", "gap_ms": 100, "die": die})
    with RawClient(place.gateway.port) as client:
        client.chat(place.run.key, max_tokens=20)
        answer = client.answer(timeout_s=10)
        assert answer.status == 200 and answer.body, "a part of it is out"
        assert client.closed and not answer.complete, "it must not look whole"
        assert b"error" not in answer.body
    row = record.calls(place.gateway)[-1]
    assert record.ending(row) == ("engine_timeout" if die == "hang" else "engine_died", "unknown")


def test_an_answer_too_large_to_hold_that_ends_well_arrives_whole(place: Place) -> None:
    whole = {"choices": [{"message": {"content": "x" * 9_000}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 11, "completion_tokens": 9}}
    text = json.dumps(whole)
    answer, row = place.ask({"raw": [text[:5_000], text[5_000:]], "raw_type": "application/json", "gap_ms": 50}, stream=False)
    assert (answer.status, answer.complete, answer.json()) == (200, True, whole)
    assert row["source"] == "unknown" and record.charge(row) == (row["reserved_input_tokens"], 20), "unreadable: charged whole"


def test_an_answer_without_usage_is_counted(place: Place) -> None:
    answer, row = place.ask({"usage": "none", "output_tokens": 7}, stream=True)
    assert answer.complete and answer.events[-1].done
    assert record.ending(row) == ("completed", "counted") and charged(row, DELIVERED)
    assert 1 <= row["output_tokens"] <= 20


def test_an_engine_that_runs_past_its_ceiling_is_cut_with_a_length_end(place: Place) -> None:
    answer, row = place.ask({"output_tokens": 400, "ignore_cap": True, "usage": "cumulative", "gap_ms": 5}, stream=True, max_tokens=10)
    assert answer.complete and sse.finish_reason(answer.body) == "length" and answer.events[-1].done
    assert record.ending(row)[0] == "cap_cut" and "cap_ignored" in row["flags"]
    assert 10 <= row["output_tokens"] < 400
