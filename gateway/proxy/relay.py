"""An engine's answer on its way to the agent: every event as soon as its end was read, all from the terminal event on held back until the call is settled.

Bytes pass unchanged but for the usage event that the agent did not ask for. Headers go out with the first event that is no comment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

import orjson

from gateway.metering.framing import Frame, FrameKind
from gateway.metering.meter import Meter
from gateway.metering.reader import Mark
from gateway.proxy.agent_side import AgentSide
from gateway.proxy.fault_points import reach
from gateway.upstream.answer import Answer

AFTER_TERMINAL_S = 1.0
"""How long the engine is read on after its terminal event: usage may come behind it."""

NO_CHARACTER = "\ufffd"
"""Stands for bytes that are no text; one token may have made it, and counted again it is three."""
_ENDS = Mark.TERMINAL | Mark.ERROR
_CONTENT = Mark.CONTENT
_EVENT = FrameKind.EVENT
CountDelivered = Callable[[str], Awaitable[int]]


class CapIgnored(Exception):
    """The engine ran past the ceiling that was sent."""


class CeilingWatch:
    """Looks whether an engine obeys the ceiling: by its running total where it gives one, else by a count of our own.

    It is counted only once it sent more events than it may make tokens:
    An event holds one token or more (but for half characters), so an engine that obeys is hardly ever counted.
    """

    SUSPECT_BYTES_PER_TOKEN = 16
    """A stream with more delivered bytes than this a token is counted too: some engines send many tokens an event."""

    def __init__(self, ceiling: int, meter: Meter, count: CountDelivered) -> None:
        self._ceiling = ceiling
        self._meter = meter
        self._count = count
        self._events = 0
        self._next_events = ceiling
        self._next_bytes = ceiling * self.SUSPECT_BYTES_PER_TOKEN

    def content(self) -> None:
        self._events += 1

    async def check(self) -> None:
        """Raises CapIgnored."""
        running = self._meter.running_output()
        if running is not None:
            if running > self._ceiling:
                raise CapIgnored
            return
        delivered_bytes = self._meter.delivered_bytes()
        if self._events > self._next_events or delivered_bytes > self._next_bytes:
            counted = await self._count(self._meter.delivered_text().replace(NO_CHARACTER, ""))
            if counted > self._ceiling:
                raise CapIgnored
            room = max(1, self._ceiling - counted)
            self._next_events = self._events + room
            self._next_bytes = delivered_bytes + room * self.SUSPECT_BYTES_PER_TOKEN


class Relay:
    """One answer. `held` is what may be written only after the settlement."""

    def __init__(self, meter: Meter, agent: AgentSide, watch: CeilingWatch) -> None:
        self._meter = meter
        self._agent = agent
        self._watch = watch
        self._before = bytearray()
        self.terminal = False
        """The terminal event was read: whatever comes now, the answer has its end."""
        self.terminal_at: float | None = None
        self.passed = False
        """Something of the engine's answer went out."""
        self.held = bytearray()
        self.unfinished = bytearray()

    async def carry(self, answer: Answer) -> None:
        """To the end of the body, or one second past the terminal event. Raises EngineFailure, BadAnswer, CapIgnored."""
        try:
            async with asyncio.timeout(None) as limit:
                async for chunk in answer.chunks():
                    await self._pass(self._meter.feed(chunk))
                    if self.terminal and limit.when() is None and self._meter.streams:
                        limit.reschedule(asyncio.get_running_loop().time() + AFTER_TERMINAL_S)
        except TimeoutError:
            return  # the terminal event is here; the engine just does not end its body
        await self._pass(self._meter.end())

    async def _pass(self, marked: Iterable[tuple[Frame, Mark]]) -> None:
        passing = bytearray()
        content = False
        streams = self._meter.streams
        for frame, mark in marked:
            if mark is _CONTENT and frame.kind is _EVENT and streams and not self.terminal:  # nearly all of them
                content = True
                self._watch.content()
                passing += frame.raw
                continue
            if frame.kind is FrameKind.UNFINISHED:
                self.unfinished += frame.raw
                continue
            if mark & Mark.CONTENT:
                content = True
                self._watch.content()
            if mark & _ENDS or not (streams or frame.kind is FrameKind.PIECE):
                self._ended()
            if mark & Mark.HIDE:
                continue
            if frame.kind is FrameKind.PIECE:
                passing += frame.raw  # too large to hold: all but its last byte goes out
            elif self.terminal:
                self.held += frame.raw
            elif frame.kind is FrameKind.COMMENT and not (self._agent.opened or passing):
                self._before += frame.raw
            else:
                passing += frame.raw
        if passing:
            self.passed = True
            if self._before:
                passing[:0] = self._before
                self._before.clear()
            await self._agent.write(passing)
            reach("mid_stream")
        if content:
            self._agent.saw_content()
            if not self.terminal:  # with its end read there is nothing left to cut
                await self._watch.check()

    @property
    def first_content_at(self) -> float | None:
        """Monotonic seconds; of a stream only."""
        return self._agent.first_content_at

    def _ended(self) -> None:
        if not self.terminal:
            self.terminal = True
            self.terminal_at = time.monotonic()

    def rest(self, completed: bool) -> bytes:
        """What goes out after the settlement. An unfinished last event only if the answer is complete and it can be read whole."""
        whole = completed and _readable(bytes(self.unfinished))
        return bytes(self._before + self.held) + (bytes(self.unfinished) if whole else b"")


def _readable(raw: bytes) -> bool:
    """A last event that lacks nothing but its blank line, or a line of JSON that lacks its end."""
    if raw.lstrip()[:1] == b"{":
        return _is_json(raw)
    lines = [line.removeprefix(b"data:").strip() for line in raw.splitlines() if line.startswith(b"data:")]
    text = b"\n".join(lines)
    if text == b"[DONE]":
        return True
    return _is_json(text)


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
