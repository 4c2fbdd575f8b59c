"""Our own count of what an agent was given, for answers whose end the engine did not report."""

from __future__ import annotations

import asyncio

from gateway.accounting.settling import OwnCount
from gateway.proxy.calls import Call
from gateway.proxy.ceiling_watch import Counted
from gateway.services import Services
from gateway.tokenizers.tokenizer import CannotCount

COUNT_S = 2.0
"""How long the model's own counter may take; then a shipped vocabulary counts: a settlement must not hang on an engine that died."""


async def count_delivered(call: Call, services: Services, text: str) -> OwnCount:
    """By the model's counter, else by o200k."""
    try:
        async with asyncio.timeout(COUNT_S):
            return OwnCount(output_tokens=await call.counter.count_text(text), counted_by=call.counter.name)
    except (CannotCount, TimeoutError):
        tokenizer = services.engines.fallback
        return OwnCount(output_tokens=await tokenizer.count([text]), counted_by=tokenizer.name)


class CountWhileItRuns:
    """The same while a stream passes: where the model's own counter can't be asked once, it is not waited for again. Holds nothing that holds it."""

    __slots__ = ("_asks_own", "_call", "_services")

    def __init__(self, call: Call, services: Services) -> None:
        self._call = call
        self._services = services
        self._asks_own = True

    async def __call__(self, text: str) -> Counted:
        if self._asks_own:
            found = await count_delivered(self._call, self._services, text)
            self._asks_own = found.counted_by == self._call.counter.name
            return Counted(found.output_tokens, own=self._asks_own)
        return Counted(await self._services.engines.fallback.count([text]), own=False)
