"""Whether an event is passed on where it arrived or by the call's task: the agent gets the same bytes, and the relay knows the same of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.openai_chat import OpenAIChat
from gateway.metering.meter import meter_of
from gateway.proxy.ceiling_watch import CapIgnored
from gateway.proxy.relay import Relay
from gateway.upstream.answer import Answer
from tests.unit.proxy.relaying import Agent, Engine, Offered, relay_of


def relay_to(agent: Agent, ceiling: int = 10_000, content_type: str = "text/event-stream") -> Relay:
    request = OpenAIChat().read_request({"model": "m", "messages": [{"role": "user", "content": "a"}], "stream": True})
    meter = meter_of(OpenAIChat().reader(request, "generic"), status=200, content_type=content_type, max_event_bytes=1 << 20, max_response_bytes=1 << 20)
    return relay_of(meter, agent, ceiling)


async def carried(chunks: Sequence[bytes], *, offered: Offered, free: Sequence[bool] = (), ceiling: int = 10_000) -> tuple[Agent, Relay]:
    agent = Agent(free)
    relay = relay_to(agent, ceiling)
    await relay.carry(cast(Answer, Engine(chunks, offered)))
    return agent, relay


def event(delta: dict[str, object], **more: object) -> bytes:
    return b"data: " + orjson.dumps({"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **more}) + b"\n\n"


PLAIN = event({"content": "word "})
ALIKE = (
    PLAIN,
    event({"content": "and another word "}),
    event({"content": 'a "quoted" one\n'}),
    event({"content": "\u00e9\u3000\U0001f600"}),
    PLAIN.replace(b"word", b"\\ud83d"),
    PLAIN.replace(b"word", b"\xff"),
    PLAIN.replace(b"word", b"\x01"),
    event({"content": "x" * 300}),
    event({"reasoning_content": "hm"}),
    event({"tool_calls": [{"index": 0, "function": {"arguments": '{"a": 1'}}]}),
    event({"tool_calls": [{"index": 0, "function": {"arguments": " plain "}}]}),
    event({}),
    b": comment\n\n",
)
USAGE = event({}, choices=[], usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3})
EVENTS = (
    PLAIN,
    event({"role": "assistant"}),
    event({}),
    b": comment\n\n",
    event({"reasoning_content": "hm"}),
    USAGE,
    b"data: nonsense\n\n",
    b"\r\n",
    b"event: x\n\n",
)
ENDS = (b"data: [DONE]\n\n", b'data: {"error":{"message":"no","code":500}}\n\n', b"")


@settings(max_examples=150, deadline=None)
@given(
    events=st.lists(st.sampled_from(EVENTS), min_size=1, max_size=12),
    end=st.sampled_from(ENDS),
    behind=st.lists(st.sampled_from(EVENTS), max_size=2),
    cuts=st.sets(st.integers(1, 2_000), max_size=20),
    free=st.lists(st.booleans(), max_size=12),
)
async def test_both_ways_give_the_agent_the_same(events: list[bytes], end: bytes, behind: list[bytes], cuts: set[int], free: list[bool]) -> None:
    stream = b"".join((*events, end, *behind))
    places = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    chunks = [stream[begin:stop] for begin, stop in pairwise(places)]
    by_task, one = await carried(chunks, offered=Offered.NOT)
    for offered in (Offered.PARSED, Offered.WHOLE):
        mixed, other = await carried(chunks, offered=offered, free=free)
        assert mixed.got == by_task.got
        for known in ("terminal", "passed", "held", "unfinished"):
            assert getattr(other, known) == getattr(one, known), known
        assert other._meter.reading(200, truncated=False) == one._meter.reading(200, truncated=False)
        assert other._watch.events == one._watch.events
        assert other.rest(True) == one.rest(True)
        assert (mixed.first_content_at is None) == (by_task.first_content_at is None)


@settings(max_examples=150, deadline=None)
@given(
    events=st.lists(st.sampled_from(ALIKE), min_size=4, max_size=150),
    end=st.sampled_from(ENDS),
    free=st.lists(st.booleans(), max_size=40),
    ceiling=st.integers(1, 200),
)
async def test_events_that_differ_in_their_text_are_counted_and_cut_like_any(events: list[bytes], end: bytes, free: list[bool], ceiling: int) -> None:
    """Byte for byte the same, up to the same event, and the same reading of it."""
    said = []
    for offered in Offered:
        agent = Agent(free if offered else ())
        relay = relay_to(agent, ceiling)
        try:
            await relay.carry(cast(Answer, Engine([*events, end], offered)))
            cut = False
        except CapIgnored:
            cut = True
        said.append((cut, bytes(agent.got), bytes(relay.held), relay._meter.reading(200, truncated=cut), relay._meter.delivered_text()))
    assert said[0] == said[1] == said[2]


async def test_plain_events_are_passed_on_at_once() -> None:
    agent, relay = await carried([PLAIN] * 50, offered=Offered.PARSED)
    assert agent.at_once == 49 and agent.got == PLAIN * 50 and relay.passed


async def test_of_events_that_differ_in_their_text_alone_one_in_many_is_looked_at_at_once() -> None:
    agent, relay = await carried([PLAIN] * 200, offered=Offered.WHOLE)
    assert agent.got == PLAIN * 200 and agent.as_it_is == 195 and agent.at_once == 4, "the first, and every 66th"
    assert relay._meter.delivered_text() == "word " * 200 and relay._watch.events == 200
    assert relay.whole is None


@pytest.mark.parametrize("more", [{"n": 1}, {"usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}])
async def test_where_each_event_tells_something_of_its_own_each_is_looked_at(more: dict[str, object]) -> None:
    agent, _ = await carried([event({"content": "word "}, **{**more, "created": number}) for number in range(50)], offered=Offered.WHOLE)
    assert agent.as_it_is == 0 and agent.at_once == 49


async def test_nothing_is_written_at_once_behind_the_terminal_event() -> None:
    agent, relay = await carried([PLAIN, PLAIN, b"data: [DONE]\n\n", PLAIN], offered=Offered.WHOLE)
    assert agent.got == PLAIN * 2 and relay.held == b"data: [DONE]\n\n" + PLAIN


@pytest.mark.parametrize("offered", Offered)
async def test_an_engine_past_its_ceiling_is_cut_either_way(offered: Offered) -> None:
    with pytest.raises(CapIgnored):
        await carried([PLAIN] * 200, offered=offered, ceiling=20)


@pytest.mark.parametrize("offered", Offered)
async def test_a_running_total_past_the_ceiling_is_cut_either_way(offered: Offered) -> None:
    totals = [event({"content": "word "}, usage={"prompt_tokens": 1, "completion_tokens": number, "total_tokens": number + 1}) for number in range(1, 40)]
    with pytest.raises(CapIgnored):
        await carried(totals, offered=offered, ceiling=20)


@pytest.mark.parametrize("offered", Offered)
@pytest.mark.parametrize("totals", [True, False])
async def test_of_events_that_came_in_one_piece_only_those_go_out_up_to_the_one_that_passes_the_ceiling(offered: Offered, totals: bool) -> None:
    used = [{"usage": {"prompt_tokens": 1, "completion_tokens": 5 * number, "total_tokens": 5 * number + 1}} if totals else {} for number in range(1, 100)]
    events = [event({"content": "word "}, **more) for more in used]
    agent = Agent(())
    relay = relay_to(agent, ceiling=22)
    chunks = [events[0], b"".join(events[1:])]
    with pytest.raises(CapIgnored):
        await relay.carry(cast(Answer, Engine(chunks, offered)))
    assert agent.got == b"".join(events[:5]), "20 of 22 are in the fourth, 25 in the fifth"
