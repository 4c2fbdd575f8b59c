"""Responses and Messages as the mock engine speaks them, held against the gateway's own meters: streamed and whole."""

from __future__ import annotations

import pytest

from gateway.accounting.usage import Reading
from gateway.dialects.anthropic_events import MessageReader
from gateway.dialects.responses_events import ResponsesReader
from gateway.metering.meter import meter_of
from gateway.mock_engine import Script, ToolCall, UsageForm
from gateway.mock_engine.events import Voice
from gateway.mock_engine.messages_events import MessagesEvents
from gateway.mock_engine.plan import Plan, make_plan
from gateway.mock_engine.responses_events import ResponsesEvents

CALL = ToolCall(name="shell", arguments='{"command":"echo hi"}')
SCRIPTS = {
    "text": Script(prompt_tokens=30, output_tokens=7, cached=4),
    "reasoning and text": Script(prompt_tokens=30, output_tokens=9, reasoning_tokens=5),
    "text and a tool call": Script(prompt_tokens=30, output_tokens=20, tool_calls=(CALL,), argument_pieces=5),
    "two tool calls": Script(prompt_tokens=30, tool_calls=(CALL, CALL)),
}
FORMATS = {"responses": ResponsesReader, "messages": MessageReader}


def voice(name: str, plan: Plan) -> Voice:
    return ResponsesEvents(plan, number=3, model="m", created=0) if name == "responses" else MessagesEvents(plan, number=3, model="m")


def streamed(name: str, plan: Plan, *, pieces: int | None = None) -> bytes:
    """All of it, or cut after so many pieces."""
    said = voice(name, plan)
    events = list(said.begin())
    for number, piece in enumerate(plan.pieces()):
        if number == pieces:
            return b"".join(events)
        events.append(said.piece(piece, 0))
    return b"".join([*events, *said.finish(), said.end()])


def read(name: str, data: bytes, *, kind: str = "text/event-stream") -> tuple[Reading, str]:
    meter = meter_of(FORMATS[name](), status=200, content_type=kind, max_event_bytes=1 << 20, max_response_bytes=1 << 20)
    meter.feed(data)
    meter.end()
    return meter.reading(200, False), meter.delivered_text()


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
def test_what_is_said_is_read_with_the_counts_and_calls_that_were_planned(name: str, script: Script, whole: bool) -> None:
    plan = make_plan(script, {}, 10_000, 3)
    data, kind = (voice(name, plan).whole(), "application/json") if whole else (streamed(name, plan), "text/event-stream")
    reading, _ = read(name, data, kind=kind)
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (30, plan.output_tokens)
    assert reading.usage.cached_tokens == script.cached
    assert reading.usage.tool_calls == len(script.tool_calls) and not reading.anomalies
    assert len(set(reading.tool_call_ids)) == len(script.tool_calls)


@pytest.mark.parametrize("name", FORMATS)
def test_streamed_and_whole_say_the_same(name: str) -> None:
    plan = make_plan(SCRIPTS["text and a tool call"], {}, 10_000, 3)
    assert read(name, streamed(name, plan))[1] == read(name, voice(name, plan).whole(), kind="application/json")[1]


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_broken_off_reads_as_no_end(name: str) -> None:
    plan = make_plan(SCRIPTS["text and a tool call"], {}, 10_000, 3)
    assert read(name, streamed(name, plan))[0].completed
    assert not read(name, streamed(name, plan, pieces=4))[0].completed


@pytest.mark.parametrize("name", FORMATS)
def test_a_script_that_reports_nothing_says_no_usage(name: str) -> None:
    plan = make_plan(Script(output_tokens=4, usage=UsageForm.NONE), {}, 10_000)
    assert b"usage" not in streamed(name, plan)


@pytest.mark.parametrize("name", FORMATS)
def test_a_cut_by_the_cap_is_said_in_the_formats_own_word(name: str) -> None:
    plan = make_plan(Script(output_tokens=40), {"max_output_tokens": 5}, 10_000)
    assert read(name, streamed(name, plan))[0].finish_reason == {"responses": "max_output_tokens", "messages": "max_tokens"}[name]
