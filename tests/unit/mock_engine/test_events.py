"""A plan on the wire: each usage form, told apart from the others."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.mock_engine import Script, ToolCall, UsageForm
from gateway.mock_engine.events import DONE, Events
from gateway.mock_engine.plan import make_plan


def stream(form: UsageForm, *, asked: bool, n: int = 1) -> tuple[list[Any], Any]:
    """The reports of the finish, and what comes behind `[DONE]`."""
    plan = make_plan(Script(output_tokens=5, prompt_tokens=20, cached=8, usage=form), {"n": n}, 1_000)
    events = Events(plan, number=1, model="m", created=0, asked=asked)
    chunks = [orjson.loads(event.removeprefix(b"data: ")) for event in events.finish()]
    late = events.after_end()
    return chunks, orjson.loads(late.removeprefix(b"data: ")) if late else None


def counted(chunk: Any) -> tuple[int, int]:
    return chunk["usage"]["prompt_tokens"], chunk["usage"]["completion_tokens"]


@pytest.mark.parametrize(
    ("form", "asked", "finish_has", "own_chunk"),
    [
        (UsageForm.AUTO, False, {"timings"}, False),
        (UsageForm.AUTO, True, set(), True),
        (UsageForm.FINAL, False, set(), False),
        (UsageForm.FINAL, True, set(), True),
        (UsageForm.FORCED, False, set(), True),
        (UsageForm.FINISH, False, {"usage"}, False),
        (UsageForm.TIMINGS, True, {"timings"}, False),
        (UsageForm.CUMULATIVE, False, {"usage"}, False),
        (UsageForm.NONE, True, set(), False),
        (UsageForm.LATE, True, set(), False),
    ],
)
def test_a_usage_form_says_where_usage_stands(form: UsageForm, asked: bool, finish_has: set[str], own_chunk: bool) -> None:
    chunks, late = stream(form, asked=asked)
    assert chunks[0]["choices"][0]["finish_reason"] == "stop"
    assert {"usage", "timings"} & set(chunks[0]) == finish_has
    assert (len(chunks) == 2) == own_chunk
    if own_chunk:
        assert chunks[1]["choices"] == [] and counted(chunks[1]) == (20, 5)
    assert (late is not None) == (form is UsageForm.LATE)


def test_timings_leave_cached_tokens_out_of_the_prompt() -> None:
    (finish,), _ = stream(UsageForm.TIMINGS, asked=False)
    assert (finish["timings"]["cache_n"], finish["timings"]["prompt_n"], finish["timings"]["predicted_n"]) == (8, 12, 5)


def test_usage_counts_all_choices_but_per_choice() -> None:
    assert counted(stream(UsageForm.FINAL, asked=True, n=3)[0][-1]) == (20, 15)
    reports = [chunk for chunk in stream(UsageForm.PER_CHOICE, asked=True, n=3)[0] if "usage" in chunk]
    assert [counted(report) for report in reports] == [(20, 5)] * 3


def test_negative_usage_is_below_zero() -> None:
    assert counted(stream(UsageForm.NEGATIVE, asked=True)[0][-1]) == (-20, -5)


def test_a_whole_answer_holds_text_reasoning_tools_and_usage() -> None:
    script = Script(output_tokens=12, reasoning_tokens=2, tool_calls=(ToolCall(name="look", arguments='{"a":1}'),))
    answer = orjson.loads(Events(make_plan(script, {"messages": []}, 1_000), number=4, model="m", created=0, asked=False).whole())
    message = answer["choices"][0]["message"]
    assert message["reasoning_content"] and message["content"]
    assert message["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"a":1}'}
    assert answer["usage"]["completion_tokens"] == 12 and answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 2


def test_the_end_is_the_dialects() -> None:
    assert DONE == b"data: [DONE]\n\n"
