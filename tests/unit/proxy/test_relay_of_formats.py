"""Whatever format an engine answers in: what is passed on unread where it looks like the last event is read as if it had been looked at at once."""

from __future__ import annotations

from typing import cast

import pytest

from gateway.dialects import DIALECTS
from gateway.metering.framing import FrameKind
from gateway.metering.meter import Meter, meter_of
from gateway.metering.reader import Mark
from gateway.metering.sse import SseFramer
from gateway.upstream.answer import Answer
from tests.unit.dialects.answers import Case, dialect_cases, reader_for
from tests.unit.proxy.relaying import Agent, Engine, Offered, relay_of

MIB = 1 << 20
OFTEN = 4


def is_stream(case: Case) -> bool:
    return case.status == 200 and case.headers.get("content-type", "").startswith("text/event-stream") and "content-encoding" not in case.headers


CASES = [case for dialect in DIALECTS for case in dialect_cases(dialect) if is_stream(case)]


def meter_for(case: Case) -> Meter:
    return meter_of(
        reader_for(case.request, case.engine, case.dialect), status=200, content_type="text/event-stream", max_event_bytes=MIB, max_response_bytes=MIB
    )


def repeated(case: Case) -> list[bytes]:
    """Its events, each that holds text as often as makes its like known."""
    meter = meter_for(case)
    framer = SseFramer(MIB)
    frames = [*framer.feed(case.body), *framer.end()]
    return [frame.raw for frame in frames for _ in range(OFTEN if meter.see(frame) is Mark.CONTENT and frame.kind is FrameKind.EVENT else 1) if frame.raw]


async def relayed(case: Case, events: list[bytes], offered: Offered) -> tuple[Agent, tuple[object, ...]]:
    agent, meter = Agent(()), meter_for(case)
    relay = relay_of(meter, agent, ceiling=1_000_000)
    await relay.carry(cast(Answer, Engine(events, offered)))
    return agent, (bytes(agent.got), bytes(relay.held), bytes(relay.unfinished), meter.reading(200, truncated=False), meter.delivered_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_every_way_gives_the_same_bytes_and_the_same_reading(case: Case) -> None:
    events = repeated(case)
    ways = [(await relayed(case, events, offered))[1] for offered in Offered]
    assert ways[0] == ways[1] == ways[2]


async def test_texts_of_chat_completions_and_messages_are_passed_on_unread() -> None:
    unread = dict.fromkeys(("openai.chat", "openai.completions", "anthropic.messages"), 0)
    for case in CASES:
        if case.dialect in unread:
            unread[case.dialect] += (await relayed(case, repeated(case), Offered.WHOLE))[0].as_it_is
    assert all(unread.values()), unread
    assert len(CASES) > 60, "whole files of fixtures are missing"
