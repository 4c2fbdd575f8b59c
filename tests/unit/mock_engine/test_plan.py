"""What an answer will say: caps honoured or ignored, and as many tokens in its text as it reports."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.mock_engine import Script, ToolCall, tokens
from gateway.mock_engine.plan import Plan, make_plan

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hello there"}]}


def plan(script: Script, context_tokens: int = 10_000, **body: object) -> Plan:
    return make_plan(script, {**BODY, **body}, context_tokens)


def said(made: Plan, choice: int = 0) -> str:
    return "".join(piece.delta.get("reasoning_content") or piece.delta.get("content", "") for piece in made.pieces() if piece.choice == choice)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_a_cap_is_honoured_under_each_name(name: str) -> None:
    made = plan(Script(output_tokens=50), **{name: 7})
    assert (made.output_tokens, made.finish_reason) == (7, "length")


def test_n_predict_goes_before_the_other_names() -> None:
    assert plan(Script(output_tokens=50), max_tokens=7, n_predict=9).output_tokens == 9


def test_without_a_number_of_its_own_a_call_says_as_much_as_is_asked_for() -> None:
    assert plan(Script(), max_tokens=33).output_tokens == 33
    assert plan(Script()).output_tokens == 16


def test_a_cap_is_ignored_where_the_script_says_so() -> None:
    made = plan(Script(output_tokens=50, ignore_cap=True), max_tokens=7)
    assert (made.output_tokens, made.finish_reason) == (50, "stop")


def test_an_output_that_fits_stops_by_itself() -> None:
    assert plan(Script(output_tokens=5), max_tokens=7).finish_reason == "stop"


def test_nothing_is_said_for_a_cap_of_zero_but_the_scripts_minimum() -> None:
    assert plan(Script(), max_tokens=0).output_tokens == 0
    assert plan(Script(minimum_output=1), max_tokens=0).output_tokens == 1


def test_the_context_bounds_the_output() -> None:
    assert plan(Script(prompt_tokens=90, output_tokens=50), 100).output_tokens == 10


def test_tool_calls_follow_the_text_and_count_as_output() -> None:
    call = ToolCall(name="look", arguments='{"a":1}')
    made = plan(Script(output_tokens=20, tool_calls=(call,)))
    assert made.finish_reason == "tool_calls"
    assert sum(piece.tokens for piece in made.pieces()) == made.output_tokens == 20
    arguments = "".join(one["function"]["arguments"] for piece in made.pieces() for one in piece.delta.get("tool_calls", ()))
    assert arguments == call.arguments


def test_tool_calls_are_not_made_where_the_cap_cuts_them() -> None:
    made = plan(Script(output_tokens=20, tool_calls=(ToolCall(name="look"),)), max_tokens=5)
    assert made.finish_reason == "length" and not any("tool_calls" in piece.delta for piece in made.pieces())


@settings(max_examples=60)
@given(output=st.integers(0, 60), reasoning=st.integers(0, 20), chunk=st.integers(1, 9), choices=st.integers(1, 3), cap=st.none() | st.integers(0, 60))
def test_the_text_of_each_choice_counts_what_is_reported(output: int, reasoning: int, chunk: int, choices: int, cap: int | None) -> None:
    made = plan(Script(output_tokens=output, reasoning_tokens=reasoning, chunk_tokens=chunk), n=choices, max_tokens=cap)
    assert sum(piece.tokens for piece in made.pieces()) == made.output_tokens * choices
    for choice in range(choices):
        parts = [piece.delta for piece in made.pieces() if piece.choice == choice]
        text = "".join(part.get("content", "") for part in parts)
        thought = "".join(part.get("reasoning_content", "") for part in parts)
        assert tokens.count(text) + tokens.count(thought) == made.output_tokens
        assert tokens.count(thought) == min(reasoning, made.output_tokens)


@settings(max_examples=60)
@given(st.text(max_size=80))
def test_a_text_never_has_more_tokens_than_bytes(text: str) -> None:
    assert tokens.count(text) == len(tokens.tokenize(text)) <= len(text.encode())


def test_the_prompt_is_what_the_template_renders() -> None:
    body = {**BODY, "tools": [{"type": "function", "function": {"name": "f"}}]}
    assert make_plan(Script(), body, 10_000).prompt_tokens == len(tokens.tokenize(tokens.render(body)))
    assert make_plan(Script(), body, 10_000).prompt_tokens > plan(Script()).prompt_tokens


def test_a_text_of_so_many_tokens_has_so_many() -> None:
    assert [tokens.count(tokens.text_of(number)) for number in (0, 1, 2, 37)] == [0, 1, 2, 37]
    assert said(plan(Script(output_tokens=37))) == tokens.text_of(37)


def test_a_text_is_said_word_for_word_and_counts_as_what_it_is() -> None:
    made = plan(Script(text="Two words.", reasoning_tokens=3))
    assert said(made).endswith("Two words.") and made.output_tokens == 3 + tokens.count("Two words.")
    assert sum(piece.tokens for piece in made.pieces()) == made.output_tokens and made.finish_reason == "stop"
    assert plan(Script(text="Two words."), max_tokens=2).finish_reason == "length"


@pytest.mark.parametrize("number", [1, 2, 7, 100])
def test_arguments_come_in_as_many_chunks_as_the_script_says_and_count_once(number: int) -> None:
    call = ToolCall(name="look", arguments='{"a":"one two three"}')
    made = plan(Script(tool_calls=(call,), argument_pieces=number))
    parts = [piece.delta["tool_calls"][0]["function"]["arguments"] for piece in made.pieces()][1:]
    assert len(parts) == number and "".join(parts) == call.arguments
    assert sum(piece.tokens for piece in made.pieces()) == made.output_tokens


def test_no_two_calls_of_a_server_have_tool_calls_of_one_id() -> None:
    ids = {
        piece.delta["tool_calls"][0].get("id") for number in (1, 2) for piece in make_plan(Script(tool_calls=(ToolCall(name="a"),)), BODY, 100, number).pieces()
    }
    assert len(ids - {None}) == 2
