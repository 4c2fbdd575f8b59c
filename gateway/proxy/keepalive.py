"""Comments on a stream whose engine is silent for long, so that nothing on the way gives the connection up.

With the first comment the status is spent: what goes wrong later can only be the dialect's error event. So they begin late.
"""

from __future__ import annotations

import asyncio

from gateway.proxy.agent_side import AgentGone, AgentSide
from gateway.services import Background

COMMENT = b": waiting for the model\n\n"
EVENT_STREAM = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}


class KeepAlive:
    """`with KeepAlive(…)`: while the engine is at work for a call that streams."""

    def __init__(self, agent: AgentSide, after_s: float, background: Background) -> None:
        self._agent = agent
        self._after_s = after_s
        self._background = background
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_later(after_s, self._due)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._handle.cancel()

    def _due(self) -> None:
        silent_s = self._loop.time() - self._agent.last_write_at
        if silent_s >= self._after_s:
            self._background.spawn(self._comment())
            silent_s = 0.0
        self._handle = self._loop.call_later(self._after_s - silent_s, self._due)

    async def _comment(self) -> None:
        if not self._agent.opened:
            self._agent.prepare(200, EVENT_STREAM)
        try:
            await self._agent.write(COMMENT)
        except AgentGone:
            pass  # its handler is told by itself
