"""Answers of completions, Responses, embeddings and rerank as servers really send them, beside the fixtures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.dialect import Mark
from tests.unit.dialects.answers import Case, Replayed, replay

REQUESTS: dict[str, dict[str, Any]] = {
    "openai.completions": {"prompt": "a"},
    "openai.responses": {"input": "a"},
    "openai.embeddings": {"input": "a"},
    "rerank": {"query": "a", "documents": ["b"]},
}


def answered(dialect: str, body: bytes, *, engine: str = "generic", status: int = 200, truncated: bool = False, **request: Any) -> Replayed:
    kind = "text/event-stream" if body.startswith((b"data:", b"event:", b":")) else "application/json"
    case = Case("made up", {"model": "m", **REQUESTS[dialect], **request}, engine, status, {"content-type": kind}, body, {}, dialect=dialect)
    return replay(case, truncated=truncated)


def whole(dialect: str, value: object, **more: Any) -> Replayed:
    return answered(dialect, json.dumps(value).encode(), **more)


def stream(*events: object, done: bool = False) -> bytes:
    lines = [f"data: {json.dumps(event)}" for event in events]
    return "".join(f"{line}\n\n" for line in [*lines, *(["data: [DONE]"] if done else [])]).encode()


def named(*events: dict[str, Any]) -> bytes:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def seen(replayed: Replayed) -> tuple[int | None, int | None, int | None, str, bool, str | None]:
    reading = replayed.reading
    usage = reading.usage
    error = str(reading.error_class) if reading.error_class else None
    return usage.input_tokens, usage.output_tokens, usage.cached_tokens, str(reading.source), reading.completed, error


# -- completions


def choice(index: int, text: str = "", finish: str | None = None, usage: tuple[int, int] | None = None, cached: int | None = None) -> dict[str, Any]:
    event: dict[str, Any] = {"id": "cmpl-1", "model": "m", "choices": [{"index": index, "text": text, "finish_reason": finish}]}
    if usage is not None:
        event["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
        if cached is not None:
            event["usage"]["prompt_tokens_details"] = {"cached_tokens": cached}
    return event


@pytest.mark.parametrize("engine", ["llama.cpp", "tgi"])
def test_reports_of_several_prompts_add_up_and_each_prompt_counts_once(engine: str) -> None:
    events = [choice(0, "a"), choice(1, "b"), choice(1, "", "stop", (7, 2), 1), choice(0, "", "length", (5, 4), 0)]
    replayed = answered("openai.completions", stream(*events, done=True), engine=engine, prompt=["x", "y"], stream=True)
    assert seen(replayed) == (12, 6, 1, "reported", True, None)
    assert replayed.reading.finish_reasons == ("length", "stop")


def test_reports_of_choices_of_several_prompts_count_each_prompt_once() -> None:
    ends = [choice(index, "a", "length", (5 if index < 2 else 7, 3)) for index in range(4)]
    replayed = answered("openai.completions", stream(*ends, done=True), engine="llama.cpp", prompt=["x", "y"], n=2, stream=True)
    assert seen(replayed) == (12, 12, None, "reported", True, None)


def test_a_stream_that_lost_a_prompts_report_is_a_lower_bound() -> None:
    replayed = answered("openai.completions", stream(choice(0, "a", "stop", (5, 4))), engine="llama.cpp", prompt=["x", "y"], stream=True, truncated=True)
    assert seen(replayed) == (5, 4, None, "estimated", False, "truncated")


def test_one_report_for_all_prompts_is_the_requests() -> None:
    final = {"id": "cmpl-1", "model": "m", "choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 6}}
    events = [choice(0, "a", "stop", (5, 4)), choice(1, "b", "stop", (7, 2)), final]
    replayed = answered("openai.completions", stream(*events, done=True), engine="vllm", prompt=["x", "y"], stream=True)
    assert seen(replayed) == (12, 6, None, "reported", True, None)
    assert replayed.marks()[2] is Mark.HIDE


def test_several_prompts_in_one_piece_on_llama_cpp_report_but_the_first() -> None:
    body = {**choice(0, "a", "length"), "usage": {"prompt_tokens": 2, "completion_tokens": 4}}
    body["choices"].append({"index": 1, "text": "b", "finish_reason": "length"})
    replayed = whole("openai.completions", body, engine="llama.cpp", prompt=["x", "y"])
    assert seen(replayed) == (2, 4, None, "estimated", True, None)
    assert "usage_first_prompt_only" in replayed.reading.anomalies
    assert seen(whole("openai.completions", body, engine="vllm", prompt=["x", "y"]))[3] == "reported"


def test_an_event_that_is_null_is_none() -> None:
    """llama.cpp sends one at the head of each of several prompts."""
    replayed = answered("openai.completions", stream(None, choice(0, "a"), None, choice(0, "", "stop", (5, 4)), done=True), stream=True)
    assert seen(replayed) == (5, 4, None, "reported", True, None)


def test_an_error_in_a_stream_of_completions_is_one_in_all_forms() -> None:
    for last in (b'data: {"error":{"code":500,"message":"x"}}\n\n', b"event: error\ndata: x\n\n", b'error: {"code":500}\n\n', b'{"error":"x"}\n'):
        replayed = answered("openai.completions", stream(choice(0, "a")) + last + b"data: [DONE]\n\n", stream=True)
        assert seen(replayed)[3:] == ("missing", False, "mid_stream_error")


# -- Responses


def response(status: str, usage: object = None, **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "model": "m", "status": status, "error": None, "output": [], "usage": usage, **more}


CREATED = {"type": "response.created", "response": response("in_progress")}
DELTA = {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "hi"}
USED = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13, "input_tokens_details": {"cached_tokens": 2}}


def test_a_failed_response_is_an_error_and_its_counts_are_real() -> None:
    failed = response("failed", USED, error={"code": "server_error", "message": "boom"})
    streamed = answered("openai.responses", named(CREATED, DELTA, {"type": "response.failed", "response": failed}), stream=True)
    assert seen(streamed) == (9, 4, 2, "reported", False, "mid_stream_error")
    assert streamed.marks()[-1] == Mark.TERMINAL | Mark.ERROR
    assert streamed.reading.finish_reason == "failed"
    assert seen(whole("openai.responses", failed)) == (9, 4, 2, "reported", False, "error_in_200")
    assert seen(whole("openai.responses", response("failed"))) == (None, None, None, "missing", False, "error_in_200")


def test_a_cancelled_response_is_an_error_of_the_engine_and_no_answer_that_broke_off() -> None:
    ends: list[dict[str, Any]] = [{"response": response("cancelled", USED)}, {"response": response("cancelled")}, {}]
    for more, counts in zip(ends, [(9, 4, 2, "reported"), *[(None, None, None, "missing")] * 2], strict=True):
        streamed = answered("openai.responses", named(CREATED, DELTA, {"type": "response.cancelled", **more}), stream=True)
        assert seen(streamed) == (*counts, False, "mid_stream_error")
        assert streamed.marks()[-1] == Mark.TERMINAL | Mark.ERROR
    assert seen(whole("openai.responses", response("cancelled"))) == (None, None, None, "missing", False, "error_in_200")


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_a_response_that_still_runs_is_not_complete(status: str) -> None:
    assert seen(whole("openai.responses", response(status))) == (None, None, None, "missing", False, "truncated")


def test_a_stream_that_ends_before_its_terminal_event_is_truncated() -> None:
    for body in (named(CREATED), named(CREATED, DELTA), named(CREATED, DELTA) + b"data: [DONE]\n\n"):
        assert seen(answered("openai.responses", body, stream=True)) == (None, None, None, "missing", False, "truncated")
    assert seen(answered("openai.responses", b"", stream=True))[4:] == (False, "empty_stream")


def test_an_error_in_a_stream_of_responses_is_one_in_all_forms() -> None:
    forms: list[dict[str, Any]] = [{"type": "error", "code": "x", "message": "y"}, {"type": "error", "error": {"code": 503, "message": "y"}}]
    for form in forms:
        replayed = answered("openai.responses", named(CREATED, form), stream=True)
        assert seen(replayed)[4:] == (False, "mid_stream_error")
        assert Mark.ERROR in replayed.marks()[-1]
    assert seen(answered("openai.responses", named(CREATED) + stream({"error": {"code": 500, "message": "y"}}), stream=True))[5] == "mid_stream_error"


def test_timings_stand_in_for_usage() -> None:
    done = {"type": "response.completed", "response": response("completed"), "timings": {"cache_n": 4, "prompt_n": 5, "predicted_n": 3}}
    assert seen(answered("openai.responses", named(CREATED, DELTA, done), stream=True)) == (9, 3, 4, "reported", True, None)


def test_usage_of_a_response_that_runs_is_a_running_total() -> None:
    running = {"type": "response.in_progress", "response": response("in_progress", {"input_tokens": 9, "output_tokens": 2})}
    replayed = answered("openai.responses", named(CREATED, running, DELTA), stream=True, truncated=True)
    assert seen(replayed) == (9, 2, None, "estimated", False, "truncated")
    assert replayed.reading.running_output == 2
    final = {"type": "response.completed", "response": response("completed", USED)}
    assert seen(answered("openai.responses", named(CREATED, running, DELTA, final), stream=True)) == (9, 4, 2, "reported", True, None)


ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "content": [{"type": "reasoning_text", "text": "so"}]},
    {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "é"}, {"type": "refusal", "refusal": "no"}]},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"},
    {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_2", "name": "g", "input": "run"},
]


def test_what_was_delivered_is_counted_once_whether_in_deltas_or_whole_or_both() -> None:
    final = {"type": "response.completed", "response": response("completed", USED, output=ITEMS)}
    bare = answered("openai.responses", named(CREATED, final), stream=True)
    items = [
        {"type": f"response.output_item.{end}", "output_index": at, "item": item if end == "done" else {**item, "content": [], "summary": []}}
        for at, item in enumerate(ITEMS)
        for end in ("added", "done")
    ]
    whole_items = answered("openai.responses", named(CREATED, *items, final), stream=True)
    deltas = [
        {"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "delta": "hm"},
        {"type": "response.reasoning_text.delta", "item_id": "rs_1", "delta": "so"},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "é"},
        {"type": "response.refusal.delta", "item_id": "msg_1", "delta": "no"},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{"},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "}"},
        {"type": "response.custom_tool_call_input.delta", "item_id": "ct_1", "delta": "run"},
        {"type": "response.output_text.done", "item_id": "msg_1", "text": "é"},
    ]
    in_deltas = answered("openai.responses", named(CREATED, *items[::2], *deltas, *items[1::2], final), stream=True)
    for replayed in (bare, whole_items, in_deltas, whole("openai.responses", response("completed", USED, output=ITEMS))):
        reading = replayed.reading
        assert (reading.reasoning_bytes, reading.text_bytes, reading.tool_argument_bytes) == (4, 4, 7)
        assert reading.usage.tool_calls == 2
        assert reading.tool_call_ids == ("call_1", "call_2")
        assert reading.item_ids == ("rs_1", "msg_1", "fc_1", "ct_1")
        assert reading.content_seen and len(replayed.meter.delivered_text().encode()) == 15


def test_content_is_marked_as_such_and_only_the_last_event_as_the_end() -> None:
    final = {"type": "response.completed", "response": response("completed", USED)}
    part = {"type": "response.content_part.added", "item_id": "msg_1", "part": {"type": "output_text", "text": ""}}
    marks = answered("openai.responses", named(CREATED, part, DELTA, final), stream=True).marks()
    assert marks == [Mark.PASS, Mark.PASS, Mark.CONTENT, Mark.TERMINAL]


# -- input alone


def test_a_total_alone_or_counts_beside_usage_are_the_input() -> None:
    results = {"results": [{"index": 0, "relevance_score": 0.5}]}
    assert seen(whole("rerank", {**results, "meta": {"tokens": {"input_tokens": 8}}})) == (8, 0, None, "reported", True, None)
    assert seen(whole("rerank", {**results, "meta": {"billed_units": {"total_tokens": 9}}})) == (9, 0, None, "reported", True, None)
    assert seen(whole("rerank", {**results, "usage": {"prompt_tokens": 0, "total_tokens": 7}})) == (7, 0, None, "reported", True, None)
    assert seen(whole("rerank", {**results, "meta": {"billed_units": {"search_units": 1}}})) == (None, 0, None, "missing", True, None)
    assert seen(whole("rerank", results)) == (None, 0, None, "missing", True, None)


def test_embeddings_in_any_encoding_are_read_alike_and_a_bare_list_tells_nothing() -> None:
    data = [{"object": "embedding", "index": 0, "embedding": "AACAPwAAAEA="}]
    assert seen(whole("openai.embeddings", {"object": "list", "data": data, "usage": {"prompt_tokens": 3}})) == (3, 0, None, "reported", True, None)
    assert seen(whole("openai.embeddings", data)) == (None, 0, None, "missing", True, None)


@pytest.mark.parametrize("dialect", ["openai.embeddings", "rerank"])
def test_what_is_no_result_is_an_error(dialect: str) -> None:
    for value in ({}, {"object": "list"}, {"error": "Unexpected endpoint"}, {"object": "error", "message": "x"}, "text", 5, None):
        assert seen(whole(dialect, value))[3:] == ("missing", False, "error_in_200")
    assert seen(answered(dialect, b"{broken"))[3:] == ("missing", False, "truncated")
    assert "bad_json_body" in answered(dialect, b"{broken").reading.anomalies
    assert seen(answered(dialect, b""))[5] == "empty_stream"


# -- all of them

USAGES: list[Any] = [
    None,
    {},
    [],
    "usage",
    5,
    {"input_tokens": -1},
    {"prompt_tokens": -5, "total_tokens": -5},
    {"prompt_tokens": "7", "input_tokens": "7"},
    True,
]


@pytest.mark.parametrize("dialect", REQUESTS)
@pytest.mark.parametrize("usage", USAGES)
def test_a_report_that_says_nothing_or_nonsense_leaves_the_numbers_unknown(dialect: str, usage: Any) -> None:
    bodies: dict[str, Any] = {
        "openai.completions": choice(0, "a", "stop"),
        "openai.responses": response("completed", output=ITEMS),
        "openai.embeddings": {"data": []},
        "rerank": {"results": []},
    }
    replayed = whole(dialect, {**bodies[dialect], "usage": usage})
    assert (replayed.reading.usage.input_tokens, str(replayed.reading.source), replayed.reading.completed) == (None, "missing", True)
    assert "usage_missing" in replayed.reading.anomalies


ERRORS = {400: "invalid_request", 401: "auth", 403: "auth", 404: "not_found", 413: "invalid_request", 422: "invalid_request", 429: "rate_limited"}
FAULTS = {500: "server_error", 501: "server_error", 502: "server_error", 503: "overloaded", 529: "overloaded"}


@pytest.mark.parametrize("dialect", REQUESTS)
@pytest.mark.parametrize(("status", "error"), [*ERRORS.items(), *FAULTS.items()])
def test_a_status_says_what_failed_whatever_the_body_is(dialect: str, status: int, error: str) -> None:
    for body in (b"", b"<html>no</html>", b"{broken", b"[]", b'{"error":{"message":"x"}}', b"data: x\n\n"):
        assert seen(answered(dialect, body, status=status)) == (None, None, None, "missing", False, error)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(sorted(REQUESTS)), st.sampled_from(["text/event-stream", "application/json"]), st.binary(max_size=200) | st.text(max_size=80), st.booleans()
)
def test_no_answer_makes_a_reading_raise(dialect: str, kind: str, body: bytes | str, truncated: bool) -> None:
    raw = body if isinstance(body, bytes) else b"data: " + body.encode("utf-8", "replace") + b"\n\n"
    case = Case("any", {"model": "m", **REQUESTS[dialect]}, "generic", 200, {"content-type": kind}, raw, {}, dialect=dialect)
    replayed = replay(case, truncated=truncated)
    assert replayed.raw() == raw
    assert not any(anomaly.startswith("reader_choked") for anomaly in replayed.reading.anomalies)


KINDS = st.sampled_from(["response.created", "response.completed", "response.failed", "response.output_item.done", "response.output_text.delta", "error", ""])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "type", "status", "output", "usage", "item", "response", "delta", "error", "content", "text"]), inner, max_size=5
        )
    ),
    max_leaves=14,
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(KINDS, st.dictionaries(st.sampled_from(["response", "item", "delta", "item_id", "error", "timings"]), ANY, max_size=4)), max_size=4))
def test_no_event_of_responses_makes_the_reader_choke(events: list[tuple[str, dict[str, Any]]]) -> None:
    replayed = answered("openai.responses", named(*({"type": kind, **fields} for kind, fields in events)) or b":\n\n", stream=True)
    assert not any(anomaly.startswith("reader_choked") for anomaly in replayed.reading.anomalies)
