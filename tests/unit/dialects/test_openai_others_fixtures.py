"""Recorded and made-up answers of completions, Responses, embeddings and rerank give their expected readings, however they were cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.dialect import Mark
from tests.unit.dialects.answers import Case, dialect_cases, engine_cases, identity, replay, shown, wanted

OTHERS = {"openai.completions": 4, "openai.responses": 5, "openai.embeddings": 2, "rerank": 3}
CASES = [case for dialect in OTHERS for case in dialect_cases(dialect)]
ENGINES = [*engine_cases("completion", "openai.completions"), *engine_cases("responses", "openai.responses"), *engine_cases("embeddings", "openai.embeddings")]
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def test_every_format_has_its_cases() -> None:
    assert {dialect: len(dialect_cases(dialect)) for dialect in OTHERS} == OTHERS
    assert {case.name for case in ENGINES} == REAL.keys() | {"llama_cpp_native-embeddings"}


@cases
def test_a_case_reads_as_expected_whole_byte_by_byte_and_as_it_was_cut(case: Case) -> None:
    for cuts in ((), range(1, len(case.body)), case.cuts):
        replayed = replay(case, cuts)
        assert shown(replayed, case.expected) == wanted(case)
        assert replayed.raw() == identity(case)
        assert not any(anomaly.startswith("reader_choked") for anomaly in replayed.reading.anomalies)
        assert set(case.expected.get("anomalies", ())) <= {*replayed.reading.anomalies}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CASES), st.lists(st.integers(0, 3_000), max_size=12))
def test_where_an_answer_was_cut_never_changes_its_reading(case: Case, cuts: list[int]) -> None:
    replayed, whole = replay(case, sorted(cuts)), replay(case)
    assert replayed.reading == whole.reading
    assert replayed.raw() == whole.raw() == identity(case)
    assert [mark for mark in replayed.marks() if mark] == [mark for mark in whole.marks() if mark]


@cases
def test_a_stream_has_one_first_end_and_only_nothing_but_ends_after_it(case: Case) -> None:
    replayed = replay(case)
    if replayed.meter.streams:
        ends = [Mark.TERMINAL in mark for mark in replayed.marks() if mark]
        assert any(ends)
        assert all(ends[ends.index(True) :])


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([case for case in CASES if case.headers["content-type"].startswith("text/event-stream")]), st.data())
def test_a_stream_that_breaks_off_never_reads_as_complete(case: Case, data: st.DataObject) -> None:
    whole = replay(case)
    ends = [sum(len(frame.raw) for frame, _ in whole.marked[:at]) for at, mark in enumerate(whole.marks()) if Mark.TERMINAL in mark]
    cut = Case(case.name, case.request, case.engine, case.status, case.headers, case.body[: data.draw(st.integers(0, ends[0]))], {}, dialect=case.dialect)
    reading = replay(cut, truncated=True).reading
    if case.dialect == "openai.responses":
        assert not reading.completed and str(reading.source) == "missing"
    if not reading.completed:
        assert reading.error_class is not None


REAL = {
    "llama_cpp_native-completion_multi_prompt": (2, 4, 1, "estimated"),
    "llama_cpp_native-completion_nonstream": (2, 6, 0, "reported"),
    "llama_cpp_native-completion_stream": (2, 4, 1, "reported"),
    "llama_cpp_native-responses_nonstream": (32, 6, 24, "reported"),
    "llama_cpp_native-responses_stream": (32, 4, 31, "reported"),
    "llama_cpp_python-completion_nonstream": (2, 3, None, "reported"),
    "llama_cpp_python-completion_stream": (None, None, None, "missing"),
    "transformers_serve-completion_nonstream": (2, 3, None, "reported"),
}


@pytest.mark.parametrize("case", [case for case in ENGINES if case.name in REAL], ids=lambda case: case.name)
def test_what_real_engines_sent_gives_the_counts_that_they_reported(case: Case) -> None:
    for cuts in ((), range(1, len(case.body))):
        replayed = replay(case, cuts)
        reading, usage = replayed.reading, replayed.reading.usage
        assert reading.completed and reading.content_seen
        assert replayed.raw() == case.body
        assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens, str(reading.source)) == REAL[case.name]
        assert not any(mark & Mark.HIDE for mark in replayed.marks())


def test_what_a_real_engine_streamed_is_delivered_once() -> None:
    case = next(case for case in ENGINES if case.name == "llama_cpp_native-responses_stream")
    replayed = replay(case)
    assert (replayed.text(), replayed.meter.delivered_text(), replayed.reading.text_bytes) == ("Zhirri", "Zhirri", 6)
    assert replayed.reading.item_ids == ("msg_NovZ5U0vdAMaQPlFnjdl7iPhzynCUUmt",)


def test_an_engine_that_has_no_embeddings_says_so_as_a_server_error() -> None:
    case = next(case for case in ENGINES if case.name == "llama_cpp_native-embeddings")
    reading = replay(case).reading
    assert (reading.status, str(reading.error_class), reading.completed, str(reading.source)) == (501, "server_error", False, "missing")
