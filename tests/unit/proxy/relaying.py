"""As much of an agent's and of an engine's side as a relay needs. Real ones: tests/integration/test_offered_chunks.py, tests/acceptance/test_bytes.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import IntEnum
from typing import cast

from gateway.metering.meter import Meter
from gateway.proxy.agent_side import AgentSide
from gateway.proxy.ceiling_watch import CeilingWatch, Counted
from gateway.proxy.relay import Relay
from gateway.upstream.answer import Taker
from gateway.upstream.event_sizes import EventSizes


class Agent:
    """`free`: whether the next write need not wait."""

    def __init__(self, free: Sequence[bool]) -> None:
        self.opened = False
        self.first_content_at: float | None = None
        self.got = bytearray()
        self.at_once = 0
        self.as_it_is = 0
        self.last_write_at = 0.0
        self._free = iter(free)

    def write_at_once(self, data: bytes) -> bool:
        if not (self.opened and next(self._free, True)):
            return False
        self.got += data
        self.at_once += 1
        return True

    def pass_chunk(self, chunk: bytes) -> bool:
        if not next(self._free, True):
            return False
        size, _, data = chunk.partition(b"\r\n")
        assert int(size, 16) == len(data) - 2 and data.endswith(b"\r\n")
        self.got += data[:-2]
        self.as_it_is += 1
        return True

    async def write(self, data: bytes) -> None:
        self.opened = True
        self.got += data

    def saw_content(self) -> None:
        if self.first_content_at is None:
            self.first_content_at = float(len(self.got))


class Offered(IntEnum):
    """How an open connection offers what comes in."""

    NOT = 0
    PARSED = 1
    WHOLE = 2


class Engine:
    def __init__(self, chunks: Sequence[bytes], offered: Offered) -> None:
        self._chunks = chunks
        self._offered = offered

    async def chunks(self, taker: Taker) -> AsyncIterator[bytes]:
        for number, chunk in enumerate(self._chunks):
            if self._offered is Offered.WHOLE and taker.whole is not None and taker.whole(b"%x\r\n%b\r\n" % (len(chunk), chunk)):
                continue
            if not (number and self._offered and taker.at_once(chunk)):
                yield chunk


def relay_of(meter: Meter, agent: Agent, ceiling: int) -> Relay:
    async def count(text: str) -> Counted:
        return Counted(len(text), own=True)

    return Relay(meter, cast(AgentSide, agent), CeilingWatch(ceiling, meter, count, EventSizes()))
