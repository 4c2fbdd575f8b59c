"""The engine's own counters, held against sums: each engine by its own names and habits."""

from __future__ import annotations

import pytest

from gateway.accounting.usage import NO_USAGE, UNKNOWN_USAGE, Usage
from gateway.errors import RecordProblem
from gateway.reconcile.record import DispatchRecord
from gateway.reconcile.witnesses import Counters, counters_in, witnesses
from tests.unit.reconcile.test_leftovers import call

LLAMA = """# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 143
# TYPE llamacpp:prompt_tokens_cached_total counter
llamacpp:prompt_tokens_cached_total 594
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 329
# TYPE llamacpp:prompt_tokens_seconds gauge
llamacpp:prompt_tokens_seconds 18.4
"""
VLLM = """# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="a"} 100.0
vllm:prompt_tokens_total{engine="0",model_name="b"} 20.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="a"} 7.0
vllm:generation_tokens_total{engine="1",model_name="a"} 8.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a"} 1.0
"""
SGLANG = """# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m"} 8128902.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="m"} 7557572.0
# TYPE sglang:cached_tokens_total counter
sglang:cached_tokens_total{model_name="m"} 1000.0
"""
CALLS = [
    call(1, usage=Usage(input_tokens=100, output_tokens=10, cached_tokens=40)),
    call(2, usage=Usage(input_tokens=150, output_tokens=20, cached_tokens=100)),
]
CUT = call(3, outcome="client_cancelled", source="running", usage=Usage(input_tokens=160, output_tokens=5))
REFUSED = call(4, outcome="engine_refused", source="none", usage=NO_USAGE)
ROWS = [
    DispatchRecord(agent="a", source=f"f:{n}", usage=Usage(input_tokens=i, output_tokens=o, cached_tokens=c))
    for n, i, o, c in ((1, 100, 10, 40), (2, 150, 20, 100))
]


@pytest.mark.parametrize(
    ("text", "engine", "values"),
    [
        (LLAMA, "llama.cpp", {"uncached_input": 143, "cached": 594, "output": 329}),
        (VLLM, "vLLM", {"input": 120, "output": 15}),
        (SGLANG, "SGLang", {"input": 8128902, "cached": 1000, "output": 7557572}),
    ],
)
def test_each_engine_is_known_by_its_own_names_and_its_models_are_added(text: str, engine: str, values: dict[str, int]) -> None:
    assert counters_in(text, "f") == Counters(engine=engine, values=values)


def counted(engine: str, **values: int) -> list[Counters]:
    return [
        Counters(engine=engine, values=dict.fromkeys(values, 1_000)),
        Counters(engine=engine, values={what: 1_000 + value for what, value in values.items()}),
    ]


def test_llama_cpps_prompt_counter_is_held_against_what_was_not_cached() -> None:
    before, after = counted("llama.cpp", uncached_input=110, cached=140, output=30)
    found = witnesses(before, after, [*CALLS, REFUSED], ROWS)
    assert [(each.what, each.ledger, each.records, each.unmeasured, each.agrees) for each in found] == [
        ("uncached_input", 110, 110, 0, True),
        ("cached", 140, 140, 0, True),
        ("output", 30, 30, 0, True),
    ]


def test_the_others_hold_the_whole_prompt() -> None:
    before, after = counted("vLLM", input=250, output=30)
    assert all(each.agrees and each.explained for each in witnesses(before, after, CALLS, ROWS))


@pytest.mark.parametrize(
    ("more", "with_cut", "explained", "words"),
    [
        (0, False, True, "agrees"),
        (3, False, False, "3 more than the ledger's sum, and nothing in the ledger explains it"),
        (-3, False, False, "3 less than the ledger's sum, and nothing in the ledger explains it"),
        (3, True, True, "3 more than the ledger's reported sum; 1 calls are not fully reported"),
        (-3, True, False, "3 less than the ledger's sum, and nothing in the ledger explains it"),
    ],
)
def test_more_is_explained_by_what_was_broken_off_and_less_by_nothing(more: int, with_cut: bool, explained: bool, words: str) -> None:
    before, after = counted("vLLM", input=250, output=30 + more)
    found = witnesses(before, after, [*CALLS, *([CUT] if with_cut else [])], ROWS)[1]
    assert (found.explained, found.says) == (explained, words)


def test_a_record_that_does_not_know_all_its_numbers_is_no_witness() -> None:
    before, after = counted("vLLM", input=250, output=30)
    rows = [*ROWS, DispatchRecord(agent="a", source="f:3", usage=UNKNOWN_USAGE)]
    assert [each.records for each in witnesses(before, after, CALLS, rows)] == [None, None]


def test_two_engines_or_a_counter_that_went_back_are_errors() -> None:
    before, after = counted("vLLM", input=250, output=30)
    with pytest.raises(RecordProblem, match="started anew between, or the files are swapped"):
        witnesses(after, before, CALLS, ROWS)
    with pytest.raises(RecordProblem, match=r"before are llama\.cpp's, those after vLLM's"):
        witnesses(Counters(engine="llama.cpp", values={"output": 1}), after, CALLS, ROWS)
