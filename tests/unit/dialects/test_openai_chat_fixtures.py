"""Every recorded or made-up answer of the chat format gives its expected reading, however it was cut; its bytes come out as they went in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.accounting.usage import Reading
from gateway.dialects.dialect import Mark
from tests.unit.dialects.answers import Case, dialect_cases, engine_cases, identity, replay, shown, wanted

CASES = dialect_cases()
BY_NAME = {case.name: case for case in CASES}
ENGINES = engine_cases()
REFUSED = engine_cases("err")


def test_there_are_65_cases() -> None:
    assert len(CASES) == 65
    assert len(ENGINES) == len(REAL) == 26
    assert len(REFUSED) == 11


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_reads_as_expected_whole_byte_by_byte_and_as_it_was_cut(case: Case) -> None:
    byte_by_byte = range(1, len(case.body)) if len(case.body) < 50_000 else range(1, len(case.body), 97)
    for cuts in ((), byte_by_byte, case.cuts):
        replayed = replay(case, cuts)
        assert shown(replayed, case.expected) == wanted(case)
        assert replayed.raw() == identity(case)
        assert not any(anomaly.startswith("reader_choked") for anomaly in replayed.reading.anomalies)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([case for case in CASES if len(case.body) < 50_000]), st.lists(st.integers(0, 3_000), max_size=12))
def test_where_an_answer_was_cut_never_changes_its_reading(case: Case, cuts: list[int]) -> None:
    replayed = replay(case, sorted(cuts))
    whole = replay(case)
    assert replayed.reading == whole.reading
    assert replayed.raw() == whole.raw() == identity(case)
    assert [mark for mark in replayed.marks() if mark] == [mark for mark in whole.marks() if mark]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_said_anomalies_are_found(case: Case) -> None:
    known = set(case.expected.get("anomalies", ()))
    assert known <= {*replay(case).reading.anomalies}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_event_is_hidden_only_where_usage_was_not_asked_for_and_it_holds_nothing_else(case: Case) -> None:
    hidden = [frame for frame, mark in replay(case).marked if Mark.HIDE in mark]
    asked = bool((case.request.get("stream_options") or {}).get("include_usage"))
    assert not (asked and hidden)
    assert bool(hidden) == (case.name in {"vllm-chat-stream-usage-forced"})
    assert all(b'"choices":[]' in frame.raw for frame in hidden)


def ended(reading: Reading) -> tuple[int | None, int | None, int | None, str]:
    return reading.usage.input_tokens, reading.usage.output_tokens, reading.usage.cached_tokens, str(reading.source)


REAL = {
    "llama_cpp_native-chat_both_max": (33, 3, 32, "reported"),
    "llama_cpp_native-chat_json_schema": (32, 20, 24, "reported"),
    "llama_cpp_native-chat_logprobs": (31, 2, 30, "reported"),
    "llama_cpp_native-chat_max_completion_tokens": (33, 3, 24, "reported"),
    "llama_cpp_native-chat_max_tokens_0": (33, 1, 32, "reported"),
    "llama_cpp_native-chat_n2": (31, 6, 24, "estimated"),
    "llama_cpp_native-chat_nonstream": (34, 32, 0, "reported"),
    "llama_cpp_native-chat_nonstream_length": (35, 5, 24, "reported"),
    "llama_cpp_native-chat_nonstream_repeat_cached": (34, 32, 33, "reported"),
    "llama_cpp_native-chat_stop": (34, 11, 24, "reported"),
    "llama_cpp_native-chat_stream_n2": (31, 8, 30, "reported"),
    "llama_cpp_native-chat_stream_nousage": (34, 12, 33, "reported"),
    "llama_cpp_native-chat_stream_timings": (31, 4, 24, "reported"),
    "llama_cpp_native-chat_stream_usage": (34, 12, 24, "reported"),
    "llama_cpp_native-chat_stream_usage_false": (34, 6, 33, "reported"),
    "llama_cpp_native-chat_tools": (37, 60, 24, "reported"),
    "llama_cpp_native-chat_tools_jinja": (34, 80, 24, "reported"),
    "llama_cpp_native-chat_tools_stream": (37, 60, 36, "reported"),
    "llama_cpp_native-chat_wrongmodel": (31, 1, 30, "reported"),
    "llama_cpp_python-chat_nomessages": (4, 60, None, "reported"),
    "llama_cpp_python-chat_nonstream": (34, 8, None, "reported"),
    "llama_cpp_python-chat_stream_nousage": (None, None, None, "missing"),
    "llama_cpp_python-chat_stream_usage": (None, None, None, "missing"),
    "transformers_serve-chat_nonstream": (34, 8, None, "reported"),
    "transformers_serve-chat_stream_nousage": (34, 4, None, "reported"),
    "transformers_serve-chat_stream_usage": (34, 4, None, "reported"),
}


@pytest.mark.parametrize("case", ENGINES, ids=lambda case: case.name)
def test_what_real_engines_sent_gives_the_counts_that_they_reported(case: Case) -> None:
    for cuts in ((), range(1, len(case.body))):
        replayed = replay(case, cuts)
        assert replayed.reading.completed
        assert replayed.raw() == case.body
        assert ended(replayed.reading) == REAL[case.name]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_what_real_engines_refused_with_reports_nothing_and_is_an_error(case: Case) -> None:
    for cuts in ((), range(1, len(case.body))):
        replayed = replay(case, cuts)
        assert replayed.raw() == case.body
        assert ended(replayed.reading) == (None, None, None, "missing")
        assert (replayed.reading.error_class is not None, replayed.reading.completed) == (True, False)
