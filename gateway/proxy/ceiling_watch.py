"""Looks whether an engine obeys the ceiling that it was sent: by its running total where it gives one, else by a count of what it delivered.

Counted is as seldom as can be, and yet at the first event with which the ceiling may be passed. A token has a byte or more, so nothing is counted before there
are as many bytes as tokens may be made, nor again before the rest could be used up. And an event holds a token or more (but for half characters): where a
count showed that this engine sends each token by itself, its events are the count, until there are too many of them or they grow.
The model's own tokenizer is believed. Another one's count is an estimate: it may not cut an engine whose events say that it obeys.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from gateway.metering.meter import Meter
from gateway.upstream.event_sizes import LARGER, EventSizes

NO_CHARACTER: Final = "\ufffd"
"""Stands for bytes that are no text; one token may have made it, and counted again it is three."""
OWN_SINGLE: Final = 1.0
"""Tokens an event, by the model's own tokenizer, up to which an engine sends each token by itself."""
FOREIGN_SINGLE: Final = 1.5
"""The same by another tokenizer, which may cut a language that it knows less well into half as many again."""


class CapIgnored(Exception):
    """The engine ran past the ceiling that was sent."""


@dataclass(frozen=True, slots=True)
class Counted:
    tokens: int
    own: bool
    """By the model's own tokenizer."""


CountDelivered = Callable[[str], Awaitable[Counted]]


class CeilingWatch:
    """One stream's."""

    def __init__(self, ceiling: int, meter: Meter, count: CountDelivered, sizes: EventSizes, upstream: str = "", model: str = "") -> None:
        self._ceiling = ceiling
        self._meter = meter
        self._count = count
        self._sizes = sizes
        self._key = (upstream, model)
        self.events = 0
        """With content, so far: counted by who passes them on."""
        self._next_events = ceiling
        self._next_bytes = ceiling
        self._single_bytes = sizes.single_token_bytes(upstream, model)

    def suspects(self) -> bool:
        """`check` has something to do."""
        if self.events > self._next_events:
            running = self._meter.running_output()
            return running is None or running > self._ceiling
        return self._meter.passed(self._ceiling, max(self._next_bytes, self.events * self._single_bytes))

    def quiet(self) -> tuple[int, float]:
        """So many more events, and so many bytes of text in them, can't make `suspects` true. Holds where the engine gives no running total."""
        return self._next_events - self.events, max(self._next_bytes, self.events * self._single_bytes) - self._meter.delivered_bytes()

    def near(self, more_bytes: int, more_events: int) -> bool:
        """`suspects` may come to be true within so much more, envelopes included."""
        running = self._meter.running_output()
        if running is not None:
            return running + more_bytes > self._ceiling
        if self.events + more_events > self._next_events:
            return True
        delivered_bytes = self._meter.delivered_bytes() + more_bytes
        return delivered_bytes > self._next_bytes and delivered_bytes > self.events * self._single_bytes

    async def check(self) -> None:
        """Raises CapIgnored."""
        if not self.suspects():
            return
        if self._meter.running_output() is not None:
            raise CapIgnored
        counted = await self._count(self._meter.delivered_text().replace(NO_CHARACTER, ""))
        single = counted.tokens <= self.events * (OWN_SINGLE if counted.own else FOREIGN_SINGLE)
        if counted.tokens > self._ceiling and (counted.own or not single or self.events > self._ceiling):
            raise CapIgnored
        self._counted(counted.tokens, single=single)

    def _counted(self, tokens: int, *, single: bool) -> None:
        delivered_bytes, events = self._meter.delivered_bytes(), max(1, self.events)
        self._sizes.learn(*self._key, seen_bytes=delivered_bytes, events=events, single=single)
        known = self._sizes.single_token_bytes(*self._key)
        self._single_bytes = max(known, delivered_bytes / events * LARGER) if single else 0.0
        room = max(0, self._ceiling - tokens)
        self._next_events = max(self._ceiling, self.events + room)
        self._next_bytes = delivered_bytes + room
