"""An engine's answer on its way to the agent: every event as soon as its end was read, all from the terminal event on held back until the call is settled.

Bytes pass unchanged but for the usage event that the agent did not ask for. Headers go out with the first event that is no comment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

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

    SUSPECT_BYTES_PER_TOKEN = 6
    """Text has some four: a stream with more is counted too, where its events are so large that some hold many tokens."""
    LARGE_EVENT_BYTES = 12
    """On average. An engine that sends each token by itself stays below it, and is not counted again by a tokenizer that may cut its text otherwise."""

    def __init__(self, ceiling: int, meter: Meter, count: CountDelivered) -> None:
        self._ceiling = ceiling
        self._meter = meter
        self._count = count
        self._events = 0
        self._next_events = ceiling
        self._next_bytes = ceiling * self.SUSPECT_BYTES_PER_TOKEN

    def content(self) -> None:
        self._events += 1

    def suspects(self) -> bool:
        """`check` has something to do."""
        running = self._meter.running_output()
        if running is not None:
            return running > self._ceiling
        if self._events > self._next_events:
            return True
        delivered_bytes = self._meter.delivered_bytes()
        return delivered_bytes > self._next_bytes and delivered_bytes > self._events * self.LARGE_EVENT_BYTES

    async def check(self) -> None:
        """Raises CapIgnored."""
        if not self.suspects():
            return
        if self._meter.running_output() is not None:
            raise CapIgnored
        counted = await self._count(self._meter.delivered_text().replace(NO_CHARACTER, ""))
        if counted > self._ceiling:
            raise CapIgnored
        room = max(1, self._ceiling - counted)
        self._next_events = self._events + room
        self._next_bytes = self._meter.delivered_bytes() + room * self.SUSPECT_BYTES_PER_TOKEN


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
        self._left: bytes | bytearray | None = None
        """What `_at_once` could not write; empty where it wrote all and something else is to be done."""
        self._content = False
        """Content went out and the ceiling was not looked at since."""

    async def carry(self, answer: Answer) -> None:
        """To the end of the body, or one second past the terminal event. Raises EngineFailure, BadAnswer, CapIgnored."""
        try:
            async with asyncio.timeout(None) as limit:
                async for chunk in answer.chunks(self._at_once):
                    left, self._left = self._left, None
                    await self._pass(self._sorted(self._meter.feed(chunk)) if left is None else left)
                    if self.terminal and limit.when() is None and self._meter.streams:
                        limit.reschedule(asyncio.get_running_loop().time() + AFTER_TERMINAL_S)
        except TimeoutError:
            return  # the terminal event is here; the engine just does not end its body
        await self._pass(self._sorted(self._meter.end()))

    def _at_once(self, chunk: bytes) -> bool:
        """Nearly every event of a stream: there is nothing to wait for, so no task is woken. All else is left to `carry`."""
        passing = self._sorted(self._meter.feed(chunk))
        if passing and (self._before or not self._agent.write_at_once(passing)):
            self._left = passing
            return False
        if passing:
            self.passed = True
            reach("mid_stream")
        if self.terminal or (self._content and self._watch.suspects()):
            self._left = b""
            return False
        if self._content:
            self._agent.saw_content()
            self._content = False
        return True

    async def _pass(self, passing: bytes | bytearray) -> None:
        if passing:
            if self._before:
                passing = self._before + passing
                self._before.clear()
            self.passed = True
            await self._agent.write(passing)
            reach("mid_stream")
        if self._content:
            self._agent.saw_content()
            if not self.terminal:  # with its end read there is nothing left to cut
                await self._watch.check()
            self._content = False

    def _sorted(self, marked: Sequence[tuple[Frame, Mark]]) -> bytes | bytearray:
        """What may go out now; the rest is held. Notes what the events mean."""
        streams = self._meter.streams
        if len(marked) == 1 and streams and not self.terminal:
            frame, mark = marked[0]
            if mark is _CONTENT and frame.kind is _EVENT:  # nearly all that an engine sends
                self._content = True
                self._watch.content()
                return frame.raw
        passing = bytearray()
        for frame, mark in marked:
            if mark is _CONTENT and frame.kind is _EVENT and streams and not self.terminal:
                self._content = True
                self._watch.content()
                passing += frame.raw
                continue
            if frame.kind is FrameKind.UNFINISHED:
                self.unfinished += frame.raw
                continue
            if mark & Mark.CONTENT:
                self._content = True
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
        return passing

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
        unfinished = bytes(self.unfinished)
        whole = completed and unfinished and _readable(unfinished)
        return bytes(self._before + self.held) + (unfinished if whole else b"")


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
