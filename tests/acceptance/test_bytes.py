"""Every answer of every engine, through `gateway serve`: the client gets the engine's bytes, and the ledger has what they report.

What may differ is named in `expected_answer`, and nothing else does: the usage event that was not asked for, an answer's broken end, an error in the place
of an answer.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.ledger.reading import LedgerReader
from tests.support import sse
from tests.support.cases import Case, cases
from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, chat_once

CASES = cases()
CEILING = 1_000_000
"""Far above what any of these answers reports."""
SMALL_BYTES = 3_000
"""Answers up to this size are sent byte by byte too."""
EVENT_STREAM = "text/event-stream"
REFUSES = {*range(300, 500), 503, 529}
DIED = b'"code":"engine_died"'
FAILED = b'"code":"engine_error"'


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    plain = {"address": mock.url, "engine": "generic", "slots": 4, "models": {"generic": "mock"}}
    counted = {"default_output_tokens": 64, "counter": "tiktoken:o200k_base"}
    guard = {"allow": ["unreported_answers"]}  # several answers in one piece are refused on llama.cpp, but for who takes them as they are
    policy: Any = {"guard": guard, "models": {"llama.cpp": {"default_output_tokens": 64}, "generic": counted}}
    folder = tmp_path_factory.mktemp("bytes")
    settings: Any = {"upstreams": {"plain": plain}}
    with GatewayProcess(folder, mock.url, policy=policy, models={"llama.cpp": "mock", "mock": "mock"}, settings=settings) as process:
        yield process


@pytest.fixture(scope="module")
def run(gateway: GatewayProcess) -> OpenedRun:
    return gateway.opened("bytes", "r1")


@dataclass(frozen=True, slots=True)
class Expected:
    status: int
    body: bytes
    """Ends before `closing`, which holds our own words."""
    closing: bytes = b""


def decoded(case: Case) -> bytes:
    return gzip.decompress(case.answer) if case.headers.get("content-encoding") == "gzip" else case.answer


def streams(case: Case) -> bool:
    return case.headers["content-type"] == EVENT_STREAM


def asks_usage(case: Case) -> bool:
    return bool((case.body.get("stream_options") or {}).get("include_usage"))


def reports_only(block: bytes) -> bool:
    """An event that is there to report usage."""
    found = sse.events(block)
    if not found or not found[0].data.startswith("{"):
        return False
    chunk = found[0].json()
    return chunk.get("usage") is not None and not chunk.get("choices")


def is_data(block: bytes) -> bool:
    return bool(sse.events(block))


def expected_answer(case: Case, asked: bool) -> Expected:
    body, error = decoded(case), case.expected["error_class"]
    if case.status in (401, 403):
        return Expected(502, b"", b'"code":"upstream_auth"')
    if case.status != 200 or not streams(case):
        return Expected(case.status, body)
    blocks, rest = sse.blocks(body)
    blocks = [block for block in blocks if asked or not reports_only(block)]
    if error == "mid_stream_error" and b'"error"' in blocks[0]:  # nothing had gone out: a plain answer, with its code
        whole = sse.events(blocks[0])[0].data
        return Expected(json.loads(whole)["error"].get("code") or 502, whole.encode())
    if error in ("truncated", "empty_stream"):
        good = [block for block in blocks if not any(event.done for event in sse.events(block))]
        return Expected(200, b"".join(good), DIED) if any(map(is_data, good)) else Expected(502, b"", DIED)
    if error == "mid_stream_error" and b'"error"' in rest:  # an error that is no event: nobody who reads events would see it
        return Expected(200, b"".join(blocks), FAILED)
    return Expected(200, b"".join(blocks) + rest)


def has_content(case: Case) -> bool:
    if not streams(case):
        choices = json.loads(decoded(case)).get("choices", [])
        return any(choice["message"].get(kind) for choice in choices for kind in ("content", "reasoning_content", "tool_calls"))
    deltas = [choice.get("delta", {}) for chunk in sse.chunks(b"".join(sse.blocks(decoded(case))[0])) for choice in chunk.get("choices", ())]
    return any(delta.get(kind) for delta in deltas for kind in ("content", "reasoning_content", "reasoning", "tool_calls"))


def expected_source(case: Case) -> set[str]:
    """Contract, part 4: what the meter reads, held against how the call ended."""
    expected = case.expected
    if expected["usage_source"] == "reported":
        return {"reported"}
    if expected["usage_source"] == "estimated":
        return {"running", "counted"}
    if case.status in REFUSES or (expected.get("error_code") in REFUSES and not has_content(case)):
        return {"none"}
    return {"counted"} if case.status == 200 and has_content(case) else {"unknown"}


def expected_outcome(case: Case) -> str:
    expected = case.expected
    if expected_source(case) == {"none"}:
        return "engine_refused"
    if expected["error_class"] in ("truncated", "empty_stream"):
        return "engine_died"
    if expected["error_class"] is not None:
        return "engine_error"
    words = [expected["finish_reason"], *expected.get("finish_reasons", [])]
    return "length" if "length" in words else "completed"


def kind_of(case: Case) -> str:
    return "llama.cpp" if case.upstream == "llama.cpp" else "generic"


def called(gateway: GatewayProcess, run: OpenedRun, case: Case, asked: bool) -> RawAnswer:
    names = ("messages", "stream", "n", "tools", "tool_choice")
    body = {name: case.body[name] for name in names if name in case.body} | {"model": kind_of(case)}
    if asked and body.get("stream"):
        body["stream_options"] = {"include_usage": True}
    if kind_of(case) == "generic":
        body["max_tokens"] = CEILING
    return chat_once(gateway.port, run.key, **body)


def check_bytes(case: Case, answer: RawAnswer, asked: bool) -> None:
    expected = expected_answer(case, asked)
    assert answer.status == expected.status, answer.body
    assert answer.complete
    assert answer.body.startswith(expected.body)
    rest = answer.body[len(expected.body) :]
    if not expected.closing:
        assert rest == b""
    elif expected.status == 200:
        assert [event.done for event in sse.events(rest)] == [False, True], rest
        assert expected.closing in rest and not sse.unfinished(rest)
    else:
        assert expected.closing in rest and answer.json()["error"]
    assert "content-encoding" not in answer.headers
    if expected.status == 200:
        assert answer.headers["content-type"].startswith(case.headers["content-type"])
    assert answer.headers.get("retry-after") == case.headers.get("retry-after")


def row_of(gateway: GatewayProcess, answer: RawAnswer) -> dict[str, Any]:
    with LedgerReader(gateway.ledger) as reader:
        [row] = reader.query("SELECT * FROM calls WHERE call_id = :id", id=answer.headers["x-request-id"])
    return row


def check_books(gateway: GatewayProcess, case: Case, answer: RawAnswer) -> None:
    row = row_of(gateway, answer)
    assert row["outcome"] == expected_outcome(case)
    assert row["source"] in expected_source(case)
    expected = case.expected
    usage = (row["input_tokens"], row["output_tokens"], row["cached_tokens"], row["reasoning_tokens"])
    charge = (row["charged_input_tokens"], row["charged_output_tokens"])
    match row["source"]:
        case "reported":
            assert usage == tuple(expected[name] for name in ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens"))
            assert charge == usage[:2]
        case "none":
            assert usage[:2] == (0, 0) and charge == (0, 0)
        case "unknown":
            assert usage[1] is None and charge[1] == 0 and charge[0] > 0
        case _:
            assert usage[1] >= (expected["output_tokens"] or 1) and charge[1] == usage[1]
            assert bool(row["counted_by"]) == (row["source"] == "counted")
    assert row["charged_requests"] == 1


def test_there_are_as_many_answers_as_were_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f" [{len(CASES)} answers of openai.chat, {sum(map(streams, CASES))} of them streams]", end=" ")
    assert len(CASES) == 65


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_clients_bytes_are_the_engines_and_the_ledger_has_what_they_report(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, case: Case) -> None:
    cuts: list[tuple[int, ...] | None] = [(), case.random_cuts(1), case.random_cuts(2, 20)]
    cuts += [case.byte_by_byte()] if len(case.answer) <= SMALL_BYTES else []
    cuts += [case.own_cuts] if case.own_cuts else []
    for cut in cuts:
        mock.script(case.script_json(cut))
        answer = called(gateway, run, case, asks_usage(case))
        check_bytes(case, answer, asks_usage(case))
        check_books(gateway, case, answer)


@pytest.mark.parametrize("case", [case for case in CASES if streams(case) and asks_usage(case)], ids=lambda case: case.name)
def test_a_client_that_did_not_ask_for_usage_gets_all_but_its_event(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, case: Case) -> None:
    mock.script(case.script_json(case.random_cuts(3)))
    answer = called(gateway, run, case, asked=False)
    check_bytes(case, answer, asked=False)
    check_books(gateway, case, answer)


BROKEN = ("openai-chat-stream-usage-null-then-final", "vllm-chat-stream-continuous", "llamacpp-chat-stream-timings-only", "tabby-chat-stream-crlf")


@pytest.mark.parametrize("die", ["eof", "reset"])
@pytest.mark.parametrize("case", [case for case in CASES if case.name in BROKEN], ids=lambda case: case.name)
def test_of_a_stream_that_breaks_off_all_whole_events_come_then_an_error_and_never_half_an_event(
    gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, case: Case, die: str
) -> None:
    blocks, _ = sse.blocks(case.answer)
    for number in range(1, 3):
        good = b"".join(blocks[:number])
        half = good + blocks[number][: len(blocks[number]) // 2]
        script = case.script_json(()) | {"raw": [half.decode()], "die": die}
        mock.script(script)
        answer = called(gateway, run, case, asked=True)
        assert answer.complete and answer.body.startswith(good), answer.body
        assert [event.done for event in sse.events(answer.body[len(good) :])] == [False, True]
        assert DIED in answer.body and not sse.unfinished(answer.body)
        row = row_of(gateway, answer)
        assert row["outcome"] == "engine_died"
        assert row["source"] in ("counted", "running", "unknown")
        assert (row["source"] == "unknown") == (not sse.text(good) and not sse.reasoning(good))


def test_of_each_engine_error_the_address_and_the_paths_are_cleaned_away(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    text = {"error": {"message": "worker http://10.0.0.7:8000/v1 died in /home/operator/models/toy.gguf", "type": "server_error", "code": 500}}
    for status, stream in ((500, False), (400, False), (500, True), (200, True)):
        raw = f"data: {json.dumps(text)}\n\n" if status == 200 else json.dumps(text)
        mock.script({"raw": [raw], "raw_status": status, "raw_type": EVENT_STREAM if status == 200 else "application/json"})
        answer = chat_once(gateway.port, run.key, model="generic", stream=stream, max_tokens=5)
        assert answer.status == (500 if status == 200 else status)
        assert b"10.0.0.7" not in answer.body and b"/home/operator" not in answer.body
        assert answer.json()["error"]["message"].startswith("worker [internal]")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("code", "status", "outcome", "source"),
    [
        (503, 503, "engine_refused", "none"),
        (429, 429, "engine_refused", "none"),
        (500, 500, "engine_error", "unknown"),
        (None, 502, "engine_error", "unknown"),
        ("a_word", 502, "engine_error", "unknown"),
        (200, 502, "engine_error", "unknown"),
    ],
)
def test_an_error_in_a_200_is_answered_with_its_code_and_502_where_it_has_none(
    gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, stream: bool, code: object, status: int, outcome: str, source: str
) -> None:
    error = {"error": {"message": "the engine says no", "type": "x", **({} if code is None else {"code": code})}}
    body = json.dumps(error)
    mock.script({"raw": [f"data: {body}\n\n" if stream else body], "raw_type": EVENT_STREAM if stream else "application/json"})
    answer = chat_once(gateway.port, run.key, model="generic", stream=stream, max_tokens=5)
    assert (answer.status, answer.json()) == (status, error)
    assert answer.headers["content-type"].startswith("application/json")
    row = row_of(gateway, answer)
    if not stream:  # a JSON error in a 200: what the engine did before is not known
        outcome, source = "engine_error", "unknown"
    assert (row["outcome"], row["source"]) == (outcome, source)


@pytest.mark.parametrize(("status", "told"), [(302, 302), (403, 502), (418, 418), (500, 500), (502, 502), (504, 504), (529, 529)])
def test_an_engines_status_is_passed_on_but_for_what_is_the_operators_fault(
    gateway: GatewayProcess, mock: MockProcess, run: OpenedRun, status: int, told: int
) -> None:
    body = b'{"error":{"message":"no","type":"x","param":null,"code":null}}'
    mock.script({"raw": [body.decode()], "raw_status": status, "raw_type": "application/json", "headers": {"Location": "/elsewhere", "Set-Cookie": "a=b"}})
    answer = chat_once(gateway.port, run.key, model="generic", max_tokens=5)
    assert answer.status == told
    assert (answer.body == body) == (told == status)
    assert not {"location", "set-cookie"} & set(answer.headers)
    assert answer.headers["server"] == "model-gateway"
    assert row_of(gateway, answer)["source"] == ("none" if status in REFUSES else "unknown")


def test_all_that_was_written_adds_up(gateway: GatewayProcess) -> None:
    with LedgerReader(gateway.ledger) as reader:
        verification = reader.verify()
        [count] = reader.query("SELECT count(*) AS open FROM calls WHERE status = 'reserved'")
    assert verification.fits, verification
    assert count["open"] == 0
