"""Every recorded or made-up answer of Anthropic's, Ollama's, llama.cpp's own and other servers' own formats gives its expected reading, however it was cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.accounting.usage import Reading
from gateway.dialects.dialect import Mark
from tests.unit.dialects.answers import Case, dialect_cases, engine_cases, identity, replay, shown, wanted

SPOKEN = ("anthropic.messages", "ollama.chat", "ollama.generate", "ollama.embed", "llamacpp.completion", "llamacpp.embedding", "tgi.generate", "lmstudio.chat")


def as_spoken(case: Case) -> Case:
    """The path says whether TGI streams; of Ollama's older embeddings only the answer is read."""
    if case.name == "tgi-generate-stream":
        return replace(case, dialect="tgi.generate_stream")
    if case.dialect == "ollama.embeddings":
        return replace(case, dialect="ollama.embed", request={"model": "toy:latest", "input": case.request["prompt"]})
    return replace(case, request={"model": "toy", **case.request})


CASES = [as_spoken(case) for dialect in (*SPOKEN, "ollama.embeddings") for case in dialect_cases(dialect)]
MESSAGES = engine_cases("anthropic_messages", "anthropic.messages")
NATIVE = engine_cases("native_completion", "llamacpp.completion")
REAL = {
    "llama_cpp_native-anthropic_messages": (31, 6, 24, "reported", "max_tokens"),
    "llama_cpp_native-anthropic_messages_stream": (31, 4, 30, "reported", "max_tokens"),
    "llama_cpp_native-native_completion": (2, 4, 1, "reported", "limit"),
    "llama_cpp_native-native_completion_stream": (2, 3, 1, "reported", "limit"),
}


def test_there_are_24_cases_and_4_captures() -> None:
    assert len(CASES) == 24
    assert len(MESSAGES) + len(NATIVE) == len(REAL) == 4


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_reads_as_expected_whole_byte_by_byte_and_as_it_was_cut(case: Case) -> None:
    for cuts in ((), range(1, len(case.body)), case.cuts):
        replayed = replay(case, cuts)
        assert shown(replayed, case.expected) == wanted(case)
        assert replayed.raw() == identity(case)
        assert not any(anomaly.startswith("reader_choked") for anomaly in replayed.reading.anomalies)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([*CASES, *MESSAGES, *NATIVE]), st.lists(st.integers(0, 2_500), max_size=12))
def test_where_an_answer_was_cut_never_changes_its_reading(case: Case, cuts: list[int]) -> None:
    replayed, whole = replay(case, sorted(cuts)), replay(case)
    assert replayed.reading == whole.reading
    assert replayed.raw() == whole.raw() == identity(case)
    assert [mark for mark in replayed.marks() if mark] == [mark for mark in whole.marks() if mark]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_said_anomalies_are_found(case: Case) -> None:
    assert {*case.expected.get("anomalies", ())} <= {*replay(case).reading.anomalies}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_stream_that_succeeded_has_one_terminal_event_and_it_is_its_last(case: Case) -> None:
    replayed = replay(case)
    if replayed.meter.streams and replayed.reading.completed:
        marks = [mark for (frame, mark) in replayed.marked if frame.data]
        assert [bool(mark & Mark.TERMINAL) for mark in marks] == [False] * (len(marks) - 1) + [True]


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(CASES), st.data())
def test_an_answer_that_breaks_off_before_its_terminal_event_is_never_complete(case: Case, data: st.DataObject) -> None:
    whole = replay(case)
    if not (whole.meter.streams and whole.reading.completed):
        return
    before = sum(len(frame.raw) for frame, mark in whole.marked if not mark & Mark.TERMINAL)
    cut = data.draw(st.integers(0, max(0, before - 1)))
    reading = replay(replace(case, body=case.body[:cut]), truncated=True).reading
    assert not reading.completed
    assert str(reading.error_class) == ("truncated" if cut else "empty_stream")


def ended(reading: Reading) -> tuple[int | None, int | None, int | None, str, str | None]:
    return reading.usage.input_tokens, reading.usage.output_tokens, reading.usage.cached_tokens, str(reading.source), reading.finish_reason


@pytest.mark.parametrize("case", [*MESSAGES, *NATIVE], ids=lambda case: case.name)
def test_what_a_real_engine_sent_gives_the_counts_that_it_reported(case: Case) -> None:
    case = replace(case, request={"model": "m", **case.request})
    for cuts in ((), range(1, len(case.body))):
        replayed = replay(case, cuts)
        assert replayed.reading.completed
        assert replayed.raw() == case.body
        assert ended(replayed.reading) == REAL[case.name]
