"""What no fixture has, but servers send: broken, contradictory and late reports, errors in odd places, ends without a marker."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.accounting.usage import ErrorClass, MeterSource, Reading
from gateway.dialects.dialect import Mark
from tests.unit.dialects.answers import Case, Replayed, replay

SSE = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}
HI: dict[str, Any] = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}
STOP: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "stop"}
GOOD = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
ERROR = {"error": {"message": "m", "code": 500}}


def chunk(*choices: dict[str, Any], **fields: object) -> bytes:
    return event({"id": "c", "model": "m", "choices": list(choices), **fields})


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def stream(*pieces: bytes, engine: str = "generic", truncated: bool = False, **request: object) -> Replayed:
    asked = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True, "stream_options": {"include_usage": True}, **request}
    return replay(Case("", asked, engine, 200, SSE, b"".join(pieces), {}), truncated=truncated)


def body(raw: bytes, status: int = 200, headers: dict[str, str] = JSON, **request: object) -> Reading:
    asked = {"model": "m", "messages": [{"role": "user", "content": "x"}], **request}
    return replay(Case("", asked, "generic", status, headers, raw, {})).reading


def figures(reading: Reading) -> tuple[int | None, int | None, MeterSource]:
    return reading.usage.input_tokens, reading.usage.output_tokens, reading.source


MISSING = (None, None, MeterSource.MISSING)


@pytest.mark.parametrize(
    "usage",
    [
        {**GOOD, "prompt_tokens": -7},
        {**GOOD, "completion_tokens": -1},
        {**GOOD, "prompt_tokens": "7"},
        {**GOOD, "completion_tokens": 2.5},
        {**GOOD, "completion_tokens": True},
        {**GOOD, "completion_tokens": 10**30},
        {**GOOD, "prompt_tokens_details": {"cached_tokens": -1}},
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        {},
        [],
        "none",
    ],
)
def test_a_report_that_cannot_be_believed_is_missing_and_never_zero(usage: object) -> None:
    for reading in (stream(chunk(HI), chunk(STOP), chunk(usage=usage), DONE).reading, body(json.dumps({"choices": [STOP], "usage": usage}).encode())):
        assert figures(reading) == MISSING
        assert reading.completed
        assert "usage_missing" in reading.anomalies


def test_a_number_written_with_a_point_is_that_number() -> None:
    assert figures(body(b'{"choices":[],"usage":{"prompt_tokens":7.0,"completion_tokens":3e0}}')) == (7, 3, MeterSource.REPORTED)


def test_input_0_is_unknown_and_the_output_stands() -> None:
    assert figures(stream(chunk(HI), chunk(STOP), chunk(usage={"prompt_tokens": 0, "completion_tokens": 5}), DONE).reading) == (None, 5, MeterSource.MISSING)


def test_what_cannot_be_believed_does_not_replace_what_was_reported_before() -> None:
    for late in (None, {}, {**GOOD, "prompt_tokens": -1}, {"prompt_tokens": 0, "completion_tokens": 0}):
        assert figures(stream(chunk(HI), chunk(STOP), chunk(usage=GOOD), chunk(usage=late), DONE).reading) == (7, 3, MeterSource.REPORTED)


def test_the_last_of_several_reports_stands() -> None:
    later = {"prompt_tokens": 8, "completion_tokens": 4}
    reading = stream(chunk(HI), chunk(STOP), chunk(usage=GOOD), chunk(usage=later), DONE).reading
    assert (figures(reading), reading.anomalies) == ((8, 4, MeterSource.REPORTED), ("usage_replaced",))


def test_usage_on_a_chunk_with_an_empty_choice_after_the_finish_is_final() -> None:
    reading = stream(chunk(HI), chunk(STOP), chunk({"index": 0, "delta": {}}, usage=GOOD), DONE).reading
    assert figures(reading) == (7, 3, MeterSource.REPORTED)


def test_usage_after_done_still_counts() -> None:
    assert figures(stream(chunk(HI), chunk(STOP), DONE, chunk(usage=GOOD)).reading) == (7, 3, MeterSource.REPORTED)


def test_an_error_after_the_final_usage_fails_the_call_and_keeps_the_counts() -> None:
    reading = stream(chunk(HI), chunk(STOP), chunk(usage=GOOD), event(ERROR), DONE).reading
    assert figures(reading) == (7, 3, MeterSource.REPORTED)
    assert (reading.completed, reading.error_class, reading.error_code, reading.error_first) == (False, ErrorClass.MID_STREAM_ERROR, 500, False)


def test_an_error_after_running_usage_leaves_a_lower_bound() -> None:
    running = {"prompt_tokens": 7, "completion_tokens": 2}
    opening = chunk({**HI, "delta": {"content": ""}}, usage={"prompt_tokens": 7, "completion_tokens": 0})
    replayed = stream(opening, chunk(HI, usage=running), event(ERROR), DONE)
    assert figures(replayed.reading) == (7, 2, MeterSource.ESTIMATED)
    assert replayed.reading.running_output == 2
    assert replayed.reading.error_class is ErrorClass.MID_STREAM_ERROR


def test_usage_that_comes_after_an_error_is_read() -> None:
    assert figures(stream(chunk(HI), event(ERROR), chunk(usage=GOOD), DONE).reading) == (7, 3, MeterSource.REPORTED)


@pytest.mark.parametrize(
    "error",
    [
        event(ERROR),
        event({"error": "text"}),
        event({"object": "error", "message": "m", "code": 400}),
        event({"type": "error", "code": "x"}),
        event({"error": {"message": "m", "http_status_code": 424}}),
        b"event: error\ndata: plain words\n\n",
        b"event: error\ndata: {\"message\": \"m\"}\n\n",
        b'error: {"code":500,"message":"m"}\n\n',
        b"error: plain words\n\n",
        b'{"error":"bare"}\n',
        event({"id": "c", "choices": [HI], "error": {"message": "m"}}),
    ],
)  # fmt: skip
def test_an_error_is_seen_in_every_form_and_held_back(error: bytes) -> None:
    replayed = stream(chunk(HI), error, DONE)
    assert replayed.reading.error_class is ErrorClass.MID_STREAM_ERROR
    assert [mark for mark in replayed.marks() if mark] == [Mark.CONTENT, Mark.ERROR | Mark.TERMINAL, Mark.TERMINAL]
    assert replayed.raw() == chunk(HI) + error + DONE


def test_a_null_error_is_none() -> None:
    assert stream(chunk(HI, error=None), chunk(STOP, error=None), DONE).reading.completed


def test_a_bad_event_in_the_middle_is_counted_and_passed() -> None:
    bad = b"data: {broken\n\ndata: 5\n\ndata: [1]\n\n"
    replayed = stream(chunk(HI), bad, chunk(STOP), chunk(usage=GOOD), DONE)
    assert figures(replayed.reading) == (7, 3, MeterSource.REPORTED)
    assert set(replayed.reading.anomalies) == {"bad_json_frame", "event_not_an_object"}
    assert bad in replayed.raw()


def test_broken_utf_8_lone_surrogates_and_nan_do_not_hide_an_event() -> None:
    odd = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"a\xff\\ud83d"},"logprobs":NaN}]}\n\n'
    rest = b'data: {"choices":[{"index":0,"delta":{"content":"\\ude80"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n'
    replayed = stream(odd, rest)
    assert figures(replayed.reading) == (7, 3, MeterSource.REPORTED)
    assert replayed.meter.delivered_text() == "a\ufffd\U0001f680"


def test_a_deeply_nested_event_is_only_a_bad_one() -> None:
    replayed = stream(chunk(HI), b"data: " + b"[" * 100_000 + b"\n\n", chunk(STOP), DONE)
    assert replayed.reading.completed
    assert replayed.reading.anomalies[0] == "bad_json_frame"


def test_timings_without_the_cached_part_give_a_lower_bound() -> None:
    reading = stream(chunk(HI), chunk(STOP, timings={"prompt_n": 5, "predicted_n": 3}), DONE, engine="llama.cpp").reading
    assert figures(reading) == (5, 3, MeterSource.ESTIMATED)
    assert (reading.usage.cached_tokens, reading.anomalies) == (None, ("timings_without_cache",))


def test_zero_timings_on_progress_events_say_nothing() -> None:
    zero = {"cache_n": 0, "prompt_n": 0, "predicted_n": 0}
    reading = stream(chunk({**HI, "delta": {}}, timings=zero), chunk(HI, timings=zero), truncated=True, engine="llama.cpp").reading
    assert (figures(reading), reading.running_output) == (MISSING, None)


def test_timings_stand_in_where_usage_cannot_be_believed() -> None:
    timings = {"cache_n": 4, "prompt_n": 3, "predicted_n": 3}
    reading = stream(chunk(HI), chunk(STOP), chunk(usage={**GOOD, "prompt_tokens": -1}, timings=timings), DONE).reading
    assert figures(reading) == (7, 3, MeterSource.REPORTED)


def test_timings_of_several_choices_add_up_and_the_prompt_counts_once() -> None:
    timings = [{"cache_n": 4, "prompt_n": 3, "predicted_n": count} for count in (5, 6)]
    two = (chunk(HI), chunk({**HI, "index": 1}), chunk(STOP, timings=timings[0]), chunk({**STOP, "index": 1}, timings=timings[1]))
    assert figures(stream(*two, DONE, engine="llama.cpp", n=2).reading) == (7, 11, MeterSource.REPORTED)
    assert figures(stream(*two[:3], truncated=True, engine="llama.cpp", n=2).reading) == (7, 5, MeterSource.ESTIMATED)


def test_one_usage_event_of_two_choices_is_a_lower_bound_where_each_choice_has_its_own() -> None:
    half = stream(chunk(HI), chunk({**HI, "index": 1}), chunk(STOP), chunk(usage=GOOD), engine="llama.cpp", n=2, truncated=True).reading
    assert figures(half) == (7, 3, MeterSource.ESTIMATED)


@pytest.mark.parametrize("asked", [1, 2])
def test_a_stream_that_breaks_before_all_its_choices_ended_is_truncated(asked: int) -> None:
    reading = stream(chunk(HI), chunk(STOP), truncated=True, n=asked).reading
    assert reading.completed == (asked == 1)


def test_a_stream_without_done_and_without_usage_is_complete_by_its_finish_reason() -> None:
    reading = stream(chunk({"delta": {"content": "a"}, "index": 0}), chunk({"delta": {}, "index": 0, "finish_reason": "length"})).reading
    assert (reading.completed, reading.finish_reason) == (True, "length")


def test_nothing_but_comments_is_truncated_and_nothing_at_all_is_empty() -> None:
    assert stream(b": ping\n\n: ping\n\n").reading.error_class is ErrorClass.TRUNCATED
    assert stream().reading.error_class is ErrorClass.EMPTY_STREAM
    assert body(b"").error_class is ErrorClass.EMPTY_STREAM


@pytest.mark.parametrize("raw", [b'{"choices":[{"index":0,"mess', b"<html>", b"\xff\xfe", b"[" * 10_000])
def test_a_200_with_broken_json_is_unreadable(raw: bytes) -> None:
    reading = body(raw)
    assert (reading.completed, reading.error_class, reading.anomalies[0]) == (False, ErrorClass.TRUNCATED, "bad_json_body")


NO_ANSWERS = [b'{"error":"Unexpected endpoint"}', b'{"error":{"code":503}}', b'{"object":"error"}', b"{}", b"[]", b"null", b'{"choices":null}']


@pytest.mark.parametrize("raw", NO_ANSWERS)
def test_a_200_that_is_no_answer_is_an_error(raw: bytes) -> None:
    assert body(raw).error_class is ErrorClass.ERROR_IN_200


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (302, ErrorClass.SERVER_ERROR), (400, ErrorClass.INVALID_REQUEST), (403, ErrorClass.AUTH), (404, ErrorClass.NOT_FOUND),
        (413, ErrorClass.INVALID_REQUEST), (422, ErrorClass.INVALID_REQUEST), (429, ErrorClass.RATE_LIMITED), (500, ErrorClass.SERVER_ERROR),
        (501, ErrorClass.SERVER_ERROR), (502, ErrorClass.SERVER_ERROR), (503, ErrorClass.OVERLOADED), (529, ErrorClass.OVERLOADED),
    ],
)  # fmt: skip
@pytest.mark.parametrize("raw", [b"", b"<html>Bad Gateway</html>", b'{"error":"text"}', b"data: x\n\n"])
def test_an_error_status_is_classed_whatever_its_body(status: int, expected: ErrorClass, raw: bytes) -> None:
    for headers in (JSON, {"content-type": "text/html"}, SSE):
        reading = body(raw, status, headers)
        assert (reading.error_class, figures(reading), reading.completed) == (expected, MISSING, False)


def test_a_compressed_body_that_was_cut_off_is_unreadable() -> None:
    packed = gzip.compress(json.dumps({"choices": [STOP], "usage": GOOD}).encode())
    reading = body(packed[:-12], headers={**JSON, "content-encoding": "gzip"})
    assert not reading.completed
    assert "encoding_cut_off" in reading.anomalies


def test_reasoning_text_and_tool_arguments_are_counted_apart() -> None:
    delta = {"content": "é", "reasoning_content": "abc", "tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "f", "arguments": "{}"}}]}
    more = {"tool_calls": [{"index": 0, "function": {"arguments": "12"}}, {"index": 1, "id": "call_2", "function": {"name": "g"}}]}
    replayed = stream(chunk({"index": 0, "delta": delta}), chunk({"index": 0, "delta": more}), chunk(STOP), DONE)
    reading = replayed.reading
    assert (reading.text_bytes, reading.reasoning_bytes, reading.tool_argument_bytes) == (2, 3, 6)
    assert (reading.usage.tool_calls, reading.tool_call_ids) == (2, ("call_1", "call_2"))
    assert replayed.meter.delivered_text() == "abcéf{}12g"
    assert [mark for mark in replayed.marks() if mark] == [Mark.CONTENT, Mark.CONTENT, Mark.TERMINAL]


def test_the_usage_event_is_hidden_from_a_client_that_did_not_ask() -> None:
    quiet = stream(chunk(HI), chunk(STOP), chunk(usage=GOOD), DONE, stream_options=None)
    assert quiet.marks() == [Mark.CONTENT, Mark.PASS, Mark.HIDE, Mark.TERMINAL]
    assert figures(quiet.reading) == (7, 3, MeterSource.REPORTED)
    riding = stream(chunk(HI), chunk(STOP, usage=GOOD), DONE, stream_options=None)
    assert Mark.HIDE not in riding.marks()


PIECES = st.lists(
    st.sampled_from(
        [chunk(HI), chunk(STOP), chunk(usage=GOOD), chunk({**HI, "index": 1}, usage=GOOD), DONE, event(ERROR), b"data: {x\n\n", b": p\n\n", b"\r\n"]
    ),
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(PIECES, st.lists(st.integers(0, 900), max_size=6), st.sampled_from(["generic", "llama.cpp"]))
def test_where_any_stream_was_cut_never_changes_its_reading(pieces: list[bytes], cuts: list[int], engine: str) -> None:
    asked = {"model": "m", "messages": [{"role": "user"}], "stream": True, "n": 2}
    case = Case("", asked, engine, 200, SSE, b"".join(pieces), {})
    assert replay(case, sorted(cuts)).reading == replay(case).reading


KEYS = ["choices", "usage", "delta", "message", "content", "tool_calls", "function", "index", "id", "error", "timings", "prompt_tokens", "completion_tokens"]
ODD = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.floats(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([*KEYS, "prompt_n", "finish_reason"]), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80) | ODD.map(event), st.sampled_from([SSE, JSON]))
def test_any_bytes_give_a_reading_without_choking(raw: bytes, headers: dict[str, str]) -> None:
    asked = {"model": "m", "messages": [{"role": "user"}], "stream": True}
    replayed = replay(Case("", asked, "llama.cpp", 200, headers, raw, {}))
    assert not any(anomaly.startswith("reader_choked") for anomaly in replayed.reading.anomalies)
    assert replayed.raw() == raw
