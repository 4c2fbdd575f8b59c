"""An engine's answer on its way to the agent: every event as soon as its end was read, all from the terminal event on held back until the call is settled.

An event comes in on one of three ways, the shortest first: `whole` passes on what differs from the last in its text alone, `at_once` what is written without
waiting, `carry` all else.

Bytes pass unchanged but for the usage event that the agent did not ask for. Headers go out with the first event that is no comment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import orjson

from gateway.metering.alike import LATE_EVENTS
from gateway.metering.framing import Frame, FrameKind
from gateway.metering.meter import Meter
from gateway.metering.reader import Mark
from gateway.proxy.agent_side import AgentSide
from gateway.proxy.ceiling_watch import CeilingWatch
from gateway.proxy.fault_points import ARMED, reach
from gateway.upstream.answer import Answer

AFTER_TERMINAL_S = 1.0
"""How long the engine is read on after its terminal event: usage may come behind it."""

_ENDS = Mark.TERMINAL | Mark.ERROR
_CONTENT = Mark.CONTENT
_PASS = Mark.PASS
_EVENT = FrameKind.EVENT


class Relay:
    """One answer. `held` is what may be written only after the settlement."""

    def __init__(self, meter: Meter, agent: AgentSide, watch: CeilingWatch) -> None:
        self._meter = meter
        self._frames, self._see, self._streams, self._grows = meter.frames, meter.see, meter.streams, meter.grows
        self._agent = agent
        self._watch = watch
        self._unseen: list[Frame] = []
        """Behind an event with which the engine may have passed its ceiling: looked at once that is known."""
        self._before = bytearray()
        self.terminal = False
        """The terminal event was read: whatever comes now, the answer has its end."""
        self.terminal_at: float | None = None
        self.passed = False
        """Something of the engine's answer went out."""
        self.held = bytearray()
        self.unfinished = bytearray()
        self._left: bytes | bytearray | None = None
        """What `at_once` could not write; empty where it wrote all and something else is to be done."""
        self._content = False
        """Content went out and the ceiling was not looked at since."""
        self._late = meter.late
        self._text_of = None if meter.alike is None else meter.alike.text_of
        self._late_max = 0
        self._room_bytes = 0.0
        """Of text, before the ceiling has to be looked at."""
        self.whole: Callable[[bytes], bool] | None = None
        self.passed_at = 0.0

    async def carry(self, answer: Answer) -> None:
        """To the end of the body, or one second past the terminal event. Raises EngineFailure, BadAnswer, CapIgnored."""
        try:
            if self._streams:
                async with asyncio.timeout(None) as limit:
                    await self._read(answer, limit)
            else:
                await self._read(answer, None)
        except TimeoutError:
            return  # the terminal event is here; the engine just does not end its body
        finally:
            self.whole = None  # which holds this
        await self._pass(self._sorted(self._meter.last_frames()))

    async def _read(self, answer: Answer, limit: asyncio.Timeout | None) -> None:
        async for chunk in answer.chunks(self):
            left, self._left = self._left, None
            if left is None:
                await self._in_steps(chunk)
            else:
                await self._pass(left)
                await self._pass_unseen()
            if limit is not None and self.terminal and limit.when() is None:
                limit.reschedule(asyncio.get_running_loop().time() + AFTER_TERMINAL_S)

    async def _in_steps(self, chunk: bytes) -> None:
        """A small piece of a compressed answer can become a million events: others have their turn between them."""
        steps = self._meter.in_steps(chunk) if self._grows else (self._frames(chunk),)
        for frames in steps:
            if frames:
                await self._pass(self._sorted(frames))
                await self._pass_unseen()
            if self._grows:
                await asyncio.sleep(0)

    async def _pass_unseen(self) -> None:
        while self._unseen:
            await self._pass(self._sorted(self._unseen))

    def at_once(self, data: bytes) -> bool:
        """Where there is nothing to wait for no task is woken. All else is left to `carry`."""
        self.whole = None
        if self._grows:
            return False
        if self._late:
            self._see_late()
        frames = self._frames(data)
        plain: Frame | None = None
        if len(frames) != 1 or not self._streams or self.terminal:
            passing = self._sorted(frames)
        else:
            frame = frames[0]
            mark = self._see(frame)
            if mark is _CONTENT and frame.kind is _EVENT:  # nearly all that an engine sends
                self._content = True
                self._watch.events += 1
                passing = frame.raw
                plain = frame
            else:
                passing = self._sort(frame, mark, bytearray())
        if passing and (self._before or not self._agent.write_at_once(passing)):
            self._left = passing
            return False
        if passing:
            self.passed = True
            if ARMED:
                reach("mid_stream")
        if self.terminal or (self._content and self._watch.suspects()):
            self._left = b""
            return False
        if self._content:
            if self._agent.first_content_at is None:
                self._agent.saw_content()
            self._content = False
        if plain is not None and self._text_of is not None and self._meter.learn(plain):
            events, self._room_bytes = self._watch.quiet()
            self._late_max = min(events, LATE_EVENTS)
            self.whole = self._as_it_is
        return True

    def _as_it_is(self, chunk: bytes) -> bool:
        """An event that differs from the last in its text alone goes out as it came, and is seen later: before any other, and before the ceiling is near."""
        assert self._text_of is not None
        text = self._text_of(chunk)
        if text is None or len(self._late) >= self._late_max:
            return False
        room = self._room_bytes - len(text)
        if room < 0 or not self._agent.pass_chunk(chunk):
            return False
        self._room_bytes = room
        self._late.append(text)
        self.passed_at = self._agent.last_write_at
        if ARMED:
            reach("mid_stream")
        return True

    def _see_late(self) -> None:
        self._watch.events += self._meter.see_late()

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

    def _sorted(self, frames: list[Frame]) -> bytes | bytearray:
        """What may go out now; the rest is held. Notes what the events mean. Ends behind an event with which the engine may have passed its ceiling."""
        if self._late:
            self._see_late()
        streams, see = self._streams, self._see
        self._unseen = []
        passing = bytearray()
        careful = streams and self._watch.near(sum([len(frame.raw) for frame in frames]), len(frames))
        for number, frame in enumerate(frames, 1):
            mark = see(frame)
            if mark is _CONTENT and frame.kind is _EVENT and streams and not self.terminal:
                self._content = True
                self._watch.events += 1
                passing += frame.raw
            else:
                self._sort(frame, mark, passing)
            if careful and mark & _CONTENT and not self.terminal and self._watch.suspects():
                self._unseen = frames[number:]
                break
        return passing

    def _sort(self, frame: Frame, mark: Mark, passing: bytearray) -> bytearray:
        if frame.kind is FrameKind.UNFINISHED:
            self.unfinished += frame.raw
            return passing
        if not (self._streams or frame.kind is FrameKind.PIECE):
            self._ended()
        if mark is not _PASS:  # to look at a flag takes longer than all else here
            if mark & _CONTENT:
                self._content = True
                self._watch.events += 1
            if mark & _ENDS:
                self._ended()
            if mark & Mark.HIDE:
                return passing
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
