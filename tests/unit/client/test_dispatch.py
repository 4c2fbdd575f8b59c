"""A driver's own dispatch record: what it writes is what the schema allows and what the reader understands."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import jsonschema
import pytest

from gateway.accounting.usage import UNKNOWN_USAGE, Usage
from gateway.client import DispatchWriter, usage_of
from gateway.client import dispatch as writing
from gateway.reconcile.finding import find_records
from gateway.reconcile.readers import dispatch_lines
from gateway.reconcile.record import DispatchRecord, RecordKind
from tests.support.dispatch_samples import SAMPLES, seen

SCHEMA = json.loads(Path(writing.__file__).with_name("gateway-dispatch-1.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"finish_reason": "tool_calls", "message": {"tool_calls": [{"id": "call_1"}]}}],
    "usage": {
        "prompt_tokens": 1010,
        "completion_tokens": 41,
        "prompt_tokens_details": {"cached_tokens": 101},
        "completion_tokens_details": {"reasoning_tokens": 6},
    },
}
RESPONSES = {
    "id": "resp_1",
    "object": "response",
    "model": "m",
    "status": "completed",
    "output": [{"type": "function_call", "id": "fc_1", "call_id": "call_1"}, {"type": "message", "id": "msg_1"}],
    "usage": {"input_tokens": 1010, "output_tokens": 41, "input_tokens_details": {"cached_tokens": 101}, "output_tokens_details": {"reasoning_tokens": 6}},
}
MESSAGES = {
    "id": "msg_1",
    "type": "message",
    "model": "m",
    "stop_reason": "tool_use",
    "content": [{"type": "text"}, {"type": "tool_use", "id": "toolu_1"}],
    "usage": {"input_tokens": 1010, "cache_read_input_tokens": 101, "cache_creation_input_tokens": 31, "output_tokens": 41},
}


def written(path: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        VALIDATOR.validate(line)
    return lines


def rows(path: Path) -> tuple[DispatchRecord, ...]:
    found = find_records([path]).read()
    assert not found.skipped
    return found.records


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["form"]["const"] == writing.FORM == dispatch_lines.FORM
    assert SCHEMA["properties"]["kind"]["enum"] == list(RecordKind)


def test_all_that_can_be_noted_comes_back_as_it_was_noted(tmp_path: Path) -> None:
    with DispatchWriter(tmp_path / "d.jsonl", "harness", session="task-1") as record:
        record.note(
            "aborted",
            id="7",
            begun_ms=1796022251000,
            ended_ms=1796022252000,
            model="m",
            model_is_servers=True,
            usage={"input_tokens": 9, "output_tokens": 4, "cached_tokens": 3, "cache_write_tokens": 2, "reasoning_tokens": 1},
            usage_is_own=True,
            response_id="chatcmpl-1",
            item_ids=["msg_1"],
            tool_call_ids=("call_1",),
            request_ids=["req_1"],
            session_ids=["ses_1"],
            status=200,
            finish="stop",
            message="left",
        )
    (line,) = written(tmp_path / "d.jsonl")
    assert set(SCHEMA["properties"]) == set(line)
    (row,) = rows(tmp_path / "d.jsonl")
    assert row == DispatchRecord(
        agent="gateway-dispatch",
        source=f"{tmp_path}/d.jsonl:1",
        kind=RecordKind.ABORTED,
        session="task-1",
        begun_ms=1796022251000,
        at_ms=1796022252000,
        model="m",
        model_is_servers=True,
        usage=Usage(input_tokens=9, output_tokens=4, cached_tokens=3, cache_write_tokens=2, reasoning_tokens=1),
        usage_is_own=True,
        response_id="chatcmpl-1",
        item_ids=("msg_1",),
        tool_call_ids=("call_1",),
        request_ids=("req_1",),
        session_ids=("ses_1",),
        status=200,
        finish="stop",
        message="left",
        copy_key="harness task-1 7",
    )


@pytest.mark.parametrize(
    ("answer", "usage", "items", "tools", "finish"),
    [
        (CHAT, Usage(input_tokens=1010, output_tokens=41, cached_tokens=101, reasoning_tokens=6), (), ("call_1",), "tool_calls"),
        (RESPONSES, Usage(input_tokens=1010, output_tokens=41, cached_tokens=101, reasoning_tokens=6), ("fc_1", "msg_1"), ("call_1",), "completed"),
        (MESSAGES, Usage(input_tokens=1142, output_tokens=41, cached_tokens=101, cache_write_tokens=31), (), ("toolu_1",), "tool_use"),
    ],
    ids=["chat", "responses", "messages"],
)
def test_an_answer_of_each_format_is_brought_to_the_form(
    answer: dict[str, object], usage: Usage, items: tuple[str, ...], tools: tuple[str, ...], finish: str, tmp_path: Path
) -> None:
    with DispatchWriter(tmp_path / "d.jsonl", "harness") as record:
        record.answer(answer, headers={"X-Request-Id": "req_1", "request-id": "req_1"})
    written(tmp_path / "d.jsonl")
    (row,) = rows(tmp_path / "d.jsonl")
    assert (row.usage, row.item_ids, row.tool_call_ids, row.finish) == (usage, items, tools, finish)
    assert (row.response_id, row.request_ids, row.model, row.model_is_servers) == (answer["id"], ("req_1",), "m", True)


def test_what_is_not_known_is_left_out_and_never_a_zero(tmp_path: Path) -> None:
    with DispatchWriter(tmp_path / "d.jsonl", "harness") as record:
        record.answer({"id": "chatcmpl-1", "usage": None})
        record.refusal(404, "Run budget reached.", headers={"request-id": "req_9"})
    first, second = written(tmp_path / "d.jsonl")
    assert "usage" not in first and "status" not in first
    assert second["request_ids"] == ["req_9"]
    answer, refusal = rows(tmp_path / "d.jsonl")
    assert answer.usage == refusal.usage == UNKNOWN_USAGE
    assert (refusal.kind, refusal.status, refusal.message) == (RecordKind.ERROR, 404, "Run budget reached.")


@pytest.mark.parametrize("sample", ["sdk-openai/ok", "sdk-anthropic/ok"])
def test_a_driver_on_a_real_sdk_notes_what_the_servers_log_says(sample: str, tmp_path: Path) -> None:
    calls = {str(call.answer["id"]): call for call in seen(sample).values() if "id" in call.answer}
    noted = 0
    with DispatchWriter(tmp_path / "d.jsonl", "sdk") as record:
        for line in (SAMPLES / sample / "record.sdk-probe-output.jsonl").read_text().splitlines():
            told = json.loads(line)
            if told.get("usage") and (told.get("id") or told.get("ids")):
                record.answer({"id": told.get("id") or told["ids"][0], "usage": told["usage"]}, headers={"request-id": told["req"]} if "req" in told else {})
                noted += 1
    found = rows(tmp_path / "d.jsonl")
    assert len(found) == noted >= 2
    for row in found:
        n, log = calls[row.response_id].n, calls[row.response_id].answer
        if sample == "sdk-anthropic/ok":
            assert row.usage == Usage(input_tokens=1130 + 12 * n, output_tokens=40 + n, cached_tokens=100 + n, cache_write_tokens=30 + n)
        else:
            assert row.usage == Usage(input_tokens=1000 + 10 * n, output_tokens=40 + n, cached_tokens=100 + n, reasoning_tokens=5 + n)
        assert row.request_ids in ((), (log["request_id"],))


def test_threads_and_writers_of_one_file_never_break_each_others_lines(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"

    def work(name: str) -> None:
        with DispatchWriter(path, name) as record:
            for number in range(100):
                record.note(id=str(number), message="x" * 900)

    threads = [threading.Thread(target=work, args=(f"d{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rows(path)) == 400


def test_a_record_is_its_owners_alone(tmp_path: Path) -> None:
    DispatchWriter(tmp_path / "d.jsonl", "harness").close()
    assert (tmp_path / "d.jsonl").stat().st_mode & 0o777 == 0o600


def test_usage_of_nothing_is_nothing() -> None:
    assert usage_of({}) == {}
    assert usage_of({"usage": {"prompt_tokens": True}}) == {"input_tokens": None, "output_tokens": None, "cached_tokens": None, "reasoning_tokens": None}
