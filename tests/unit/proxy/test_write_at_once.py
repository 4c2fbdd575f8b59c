"""What is written past aiohttp is framed as aiohttp frames it, and only where nothing has to be waited for."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from aiohttp import web

from gateway.capture.answers import AnswerTape
from gateway.proxy.agent_side import WAITS_ABOVE_BYTES, AgentSide


class Transport:
    def __init__(self) -> None:
        self.closing = False
        self.waiting = 0
        self.written = bytearray()

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def write(self, data: bytes) -> None:
        self.written += data


async def side(transport: Transport | None) -> AgentSide:
    agent = AgentSide(cast(web.BaseRequest, None))
    agent._chunked = cast(asyncio.Transport | None, transport)
    return agent


async def test_a_chunk_is_framed() -> None:
    transport = Transport()
    agent = await side(transport)
    agent.last_write_at = 0.0
    assert agent.write_at_once(b"data: 1\n\n") and agent.write_at_once(bytearray(b"x" * 300))
    assert transport.written == b"9\r\ndata: 1\n\n\r\n12c\r\n" + b"x" * 300 + b"\r\n"
    assert agent.last_write_at > 0


HINDRANCES = ("not opened", "backed up", "too much", "closing", "deaf")


async def hindered(why: str) -> tuple[AgentSide, Transport, bytes]:
    """And what it is to write."""
    transport = Transport()
    agent = await side(None if why == "not opened" else transport)
    transport.waiting = WAITS_ABOVE_BYTES if why == "backed up" else 0
    transport.closing = why == "closing"
    agent.deaf = why == "deaf"
    agent.tape = AnswerTape() if why == "kept" else None
    return agent, transport, b"x" * (WAITS_ABOVE_BYTES + 1 if why == "too much" else 1)


@pytest.mark.parametrize("why", HINDRANCES)
async def test_nothing_is_done_where_a_write_would_have_to_wait_or_would_fail(why: str) -> None:
    agent, transport, data = await hindered(why)
    assert not agent.write_at_once(data)
    assert transport.written == b""


async def test_a_framed_chunk_goes_out_as_it_is() -> None:
    transport = Transport()
    agent = await side(transport)
    agent.last_write_at = 0.0
    assert agent.pass_chunk(b"9\r\ndata: 1\n\n\r\n")
    assert transport.written == b"9\r\ndata: 1\n\n\r\n" and agent.last_write_at > 0


@pytest.mark.parametrize("why", [*HINDRANCES, "kept"])
async def test_a_framed_chunk_is_left_where_it_would_have_to_wait_or_is_to_be_kept(why: str) -> None:
    agent, transport, chunk = await hindered(why)
    assert not agent.pass_chunk(chunk)
    assert transport.written == b""
