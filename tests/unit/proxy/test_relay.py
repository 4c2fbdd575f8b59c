"""Whether an event is passed on where it arrived or by the call's task: the agent gets the same bytes, and the relay knows the same of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise
from typing import cast

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.openai_chat import OpenAIChat
from gateway.metering.meter import meter_of
from gateway.proxy.agent_side import AgentSide
from gateway.proxy.ceiling_watch import CapIgnored, CeilingWatch, Counted
from gateway.proxy.relay import Relay
from gateway.upstream.answer import Answer
from gateway.upstream.event_sizes import EventSizes


class Agent:
    """As much of an agent's side as a relay needs. `free`: whether the next write need not wait."""

    def __init__(self, free: Sequence[bool]) -> None:
        self.opened = False
        self.first_content_at: float | None = None
        self.got = bytearray()
        self.at_once = 0
        self._free = iter(free)

    def write_at_once(self, data: bytes) -> bool:
        if not (self.opened and next(self._free, True)):
            return False
        self.got += data
        self.at_once += 1
        return True

    async def write(self, data: bytes) -> None:
        self.opened = True
        self.got += data

    def saw_content(self) -> None:
        if self.first_content_at is None:
            self.first_content_at = float(len(self.got))


class Engine:
    """An answer whose chunks are offered (or not), as they are by an open connection."""

    def __init__(self, chunks: Sequence[bytes], offered: bool) -> None:
        self._chunks = chunks
        self._offered = offered

    async def chunks(self, at_once: Callable[[bytes], bool]) -> AsyncIterator[bytes]:
        for number, chunk in enumerate(self._chunks):
            if not (number and self._offered and at_once(chunk)):
                yield chunk


def relay_to(agent: Agent, ceiling: int = 10_000, content_type: str = "text/event-stream") -> Relay:
    request = OpenAIChat().read_request({"model": "m", "messages": [{"role": "user", "content": "a"}], "stream": True})
    meter = meter_of(OpenAIChat().reader(request, "generic"), status=200, content_type=content_type, max_event_bytes=1 << 20, max_response_bytes=1 << 20)

    async def count(text: str) -> Counted:
        return Counted(len(text), own=True)

    return Relay(meter, cast(AgentSide, agent), CeilingWatch(ceiling, meter, count, EventSizes()))


async def carried(chunks: Sequence[bytes], *, offered: bool, free: Sequence[bool] = (), ceiling: int = 10_000) -> tuple[Agent, Relay]:
    agent = Agent(free)
    relay = relay_to(agent, ceiling)
    await relay.carry(cast(Answer, Engine(chunks, offered)))
    return agent, relay


def event(delta: dict[str, object], **more: object) -> bytes:
    return b"data: " + orjson.dumps({"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **more}) + b"\n\n"


PLAIN = event({"content": "word "})
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
    by_task, one = await carried(chunks, offered=False)
    mixed, other = await carried(chunks, offered=True, free=free)
    assert mixed.got == by_task.got
    for known in ("terminal", "passed", "held", "unfinished"):
        assert getattr(other, known) == getattr(one, known), known
    assert other.rest(True) == one.rest(True)
    assert (mixed.first_content_at is None) == (by_task.first_content_at is None)


async def test_plain_events_are_passed_on_at_once() -> None:
    agent, relay = await carried([PLAIN] * 50, offered=True)
    assert agent.at_once == 49 and agent.got == PLAIN * 50 and relay.passed


async def test_nothing_is_written_at_once_behind_the_terminal_event() -> None:
    agent, relay = await carried([PLAIN, PLAIN, b"data: [DONE]\n\n", PLAIN], offered=True)
    assert agent.got == PLAIN * 2 and relay.held == b"data: [DONE]\n\n" + PLAIN


@pytest.mark.parametrize("offered", [True, False])
async def test_an_engine_past_its_ceiling_is_cut_either_way(offered: bool) -> None:
    with pytest.raises(CapIgnored):
        await carried([PLAIN] * 200, offered=offered, ceiling=20)


@pytest.mark.parametrize("offered", [True, False])
async def test_a_running_total_past_the_ceiling_is_cut_either_way(offered: bool) -> None:
    totals = [event({"content": "word "}, usage={"prompt_tokens": 1, "completion_tokens": number, "total_tokens": number + 1}) for number in range(1, 40)]
    with pytest.raises(CapIgnored):
        await carried(totals, offered=offered, ceiling=20)


@pytest.mark.parametrize("offered", [True, False])
@pytest.mark.parametrize("totals", [True, False])
async def test_of_events_that_came_in_one_piece_only_those_go_out_up_to_the_one_that_passes_the_ceiling(offered: bool, totals: bool) -> None:
    used = [{"usage": {"prompt_tokens": 1, "completion_tokens": 5 * number, "total_tokens": 5 * number + 1}} if totals else {} for number in range(1, 100)]
    events = [event({"content": "word "}, **more) for more in used]
    agent = Agent(())
    relay = relay_to(agent, ceiling=22)
    chunks = [events[0], b"".join(events[1:])]
    with pytest.raises(CapIgnored):
        await relay.carry(cast(Answer, Engine(chunks, offered)))
    assert agent.got == b"".join(events[:5]), "20 of 22 are in the fourth, 25 in the fifth"
