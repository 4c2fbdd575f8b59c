"""Comments go to an agent only while its engine is silent for long, and end with the engine's work."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

from gateway.proxy.agent_side import AgentGone, AgentSide
from gateway.proxy.keepalive import COMMENT, EVENT_STREAM, KeepAlive
from gateway.services import Background

AFTER_S = 0.1


class Agent:
    """As much of an agent's side as comments need."""

    def __init__(self, *, gone: bool = False) -> None:
        self.loop = asyncio.get_running_loop()
        self.last_write_at = self.loop.time()
        self.opened = False
        self.gone = gone
        self.prepared: list[tuple[int, Mapping[str, str]]] = []
        self.written: list[bytes] = []

    def prepare(self, status: int, headers: Mapping[str, str]) -> None:
        self.prepared.append((status, headers))

    async def write(self, data: bytes) -> None:
        if self.gone:
            raise AgentGone
        self.opened = True
        self.last_write_at = self.loop.time()
        self.written.append(data)

    @property
    def side(self) -> AgentSide:
        return cast(AgentSide, self)


async def test_a_silent_engine_opens_the_stream_with_a_comment_and_goes_on_with_more() -> None:
    agent, background = Agent(), Background()
    with KeepAlive(agent.side, AFTER_S, background):
        await asyncio.sleep(AFTER_S * 5)
    assert 2 <= len(agent.written) <= 5 and set(agent.written) == {COMMENT}
    assert agent.prepared == [(200, EVENT_STREAM)]


async def test_an_engine_that_speaks_gets_no_comments() -> None:
    agent, background = Agent(), Background()
    with KeepAlive(agent.side, AFTER_S * 5, background):
        for _ in range(10):
            await agent.write(b"data: x\n\n")
            await asyncio.sleep(AFTER_S)
    assert COMMENT not in agent.written
    assert agent.prepared == []


async def test_an_engine_that_falls_silent_in_an_open_stream_gets_comments_without_a_head() -> None:
    agent, background = Agent(), Background()
    await agent.write(b"data: x\n\n")
    with KeepAlive(agent.side, AFTER_S, background):
        await asyncio.sleep(AFTER_S * 3)
    assert COMMENT in agent.written
    assert agent.prepared == []


async def test_after_the_engines_work_no_comment_follows() -> None:
    agent, background = Agent(), Background()
    with KeepAlive(agent.side, AFTER_S, background):
        pass
    await asyncio.sleep(AFTER_S * 3)
    assert agent.written == []


async def test_an_agent_that_is_gone_is_nobodys_error() -> None:
    agent, background = Agent(gone=True), Background()
    with KeepAlive(agent.side, AFTER_S, background):
        await asyncio.sleep(AFTER_S * 2.5)
    assert await background.finished(1)
    assert agent.written == []


def test_a_comment_is_a_comment_of_an_event_stream_and_a_whole_one() -> None:
    assert COMMENT.startswith(b":") and COMMENT.endswith(b"\n\n") and COMMENT.count(b"\n") == 2
