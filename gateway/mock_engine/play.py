"""One chat call, played by its script: prefill, pace, pings, and the way it ends.

A stream stops the moment its client leaves, unless the script says `ignores_leaving`; an answer in one piece goes on unless it says `cancels_whole`. Either
stands in the log.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from typing import Any

from gateway.mock_engine import events
from gateway.mock_engine.events import Events, Voice
from gateway.mock_engine.log import CallRecord
from gateway.mock_engine.messages_events import MessagesEvents
from gateway.mock_engine.plan import Plan, asked_cap, make_plan
from gateway.mock_engine.responses_events import ResponsesEvents
from gateway.mock_engine.script import Die, Script
from gateway.mock_engine.wire import Connection

EVENT_STREAM = "text/event-stream"
BEFORE_RESET_S = 0.02
"""So that what was sent is read before the reset overtakes it."""


class Died(Exception):
    """The script's bad end has come; the connection is as it shall be."""


class Player:
    """Plays one call onto one connection."""

    def __init__(self, connection: Connection, record: CallRecord, script: Script, body: dict[str, Any], context_tokens: int) -> None:
        self._connection = connection
        self._record = record
        self._script = script
        self._body = body
        self._context_tokens = context_tokens
        self.plan: Plan = make_plan(script, body, context_tokens, record.number)
        record.prompt_tokens, record.cached_tokens = self.plan.prompt_tokens, self.plan.cached_tokens
        cap = asked_cap(body)
        record.asked_tokens = -1 if cap is None else cap
        asked = bool((body.get("stream_options") or {}).get("include_usage"))
        self._events = _voice(record, self.plan, asked)
        self._squeezer = zlib.compressobj(wbits=31) if script.gzip else None

    def refused(self) -> bool:
        """An error answer that needs no slot; True where it was given."""
        die = self._script.die
        if not self._script.raw and self.plan.prompt_tokens >= self._context_tokens:
            die = Die.STATUS_400
        if die not in events.ERRORS or die is Die.STATUS_500:
            return False
        self._error(die)
        return True

    async def play(self) -> None:
        """From the moment a slot is free. Raises Died where the script says so."""
        script = self._script
        if script.raw:
            return await self._raw()
        if not script.ping_ms:
            await _pause(script.prefill_ms)
        await self._early_death()
        await (self._stream() if self._record.stream else self._whole())

    async def _early_death(self) -> None:
        match self._script.die:
            case Die.RESET_BEFORE_HEADERS:
                self._connection.reset()
            case Die.EOF_BEFORE_HEADERS:
                self._connection.close()
            case Die.HANG_BEFORE_HEADERS:
                await self._hang()
            case Die.STATUS_500:
                self._error(Die.STATUS_500)
            case _:
                return
        raise Died(self._script.die)

    # a stream

    async def _stream(self) -> None:
        script, record = self._script, self._record
        self._open(EVENT_STREAM)
        if script.ping_ms:
            await self._pings()
        if script.die is Die.ERROR_EVENT and script.die_after == 0:
            await self._die()
        for event in self._events.begin():
            self._send(event)
        for number, piece in enumerate(self.plan.pieces()):
            if script.die and record.output_tokens >= script.die_after:
                await self._die()
            if number:
                await _pause(script.gap_ms)
            if script.comments_every and number % script.comments_every == 0:
                self._send(events.COMMENT)
            record.output_tokens += piece.tokens
            self._send(self._events.piece(piece, record.output_tokens))
            await self._connection.drained()
        if script.die:
            await self._die()
        await self._finish()

    async def _finish(self) -> None:
        for event in self._events.finish():
            self._send(event)
        await _pause(self._script.finish_before_done_ms)
        self._send(self._events.end())
        if late := self._events.after_end():
            self._send(late)
        self._close_body()

    async def _pings(self) -> None:
        script = self._script
        for _ in range(script.prefill_ms // script.ping_ms):
            await _pause(script.ping_ms)
            self._send(events.COMMENT)
        await _pause(script.prefill_ms % script.ping_ms)

    async def _die(self) -> None:
        match self._script.die:
            case Die.ERROR_EVENT:
                self._send(self._events.error(events.ERRORS[Die.STATUS_500][2]))
                self._close_body()
            case Die.NO_DONE:
                self._close_body()
            case Die.HALF_EVENT:
                event = next(iter(self._events.begin()))
                self._send(event[: len(event) // 2])
                self._close_body()
            case _:
                await self._break_off()
        raise Died(self._script.die)

    # an answer in one piece

    async def _whole(self) -> None:
        script, record = self._script, self._record
        dies_after = script.die_after if script.die else None
        for number, piece in enumerate(self.plan.pieces()):
            if dies_after is not None and record.output_tokens >= dies_after:
                break
            if number and script.gap_ms:
                await _pause(script.gap_ms)
            record.output_tokens += piece.tokens
        await _pause(script.finish_before_done_ms)
        body = self._events.whole()
        match script.die:
            case Die.ERROR_EVENT:
                body = events.error_body(Die.STATUS_500)[1]
            case Die.HALF_EVENT | Die.NO_DONE:
                body = body[: len(body) // 2]
        if self._squeezer is not None:
            body = self._squeezer.compress(body) + self._squeezer.flush()
        broken = script.die in (Die.RESET, Die.EOF, Die.HANG)
        self._head(200, "application/json", {"Content-Length": str(len(body))})
        piece_sent = body[: len(body) // 2] if broken else body
        self._write(piece_sent, piece_sent)
        if broken:
            await self._break_off()
        if script.die:
            raise Died(script.die)

    # bytes as told

    async def _raw(self) -> None:
        script = self._script
        counted = script.raw_type != EVENT_STREAM and not script.die
        if counted:
            self._head(script.raw_status, script.raw_type, {"Content-Length": str(sum(map(len, script.raw)))})
        else:
            self._open(script.raw_type, script.raw_status)
        for number, piece in enumerate(script.raw):
            if number:
                await asyncio.sleep(script.gap_ms / 1000)
            if counted:
                self._write(piece, piece)
            else:
                self._send(piece)
            await self._connection.drained()
        await _pause(script.finish_before_done_ms)
        if script.die:
            await self._break_off()
            raise Died(script.die)
        if not counted:
            self._close_body()

    # what they share

    def _head(self, status: int, content_type: str, more: dict[str, str]) -> None:
        self._record.status = status
        coding = {"Content-Encoding": "gzip"} if self._squeezer is not None else {}
        self._connection.head(status, {"Content-Type": content_type, "Server": "mock-engine"} | coding | more | self._script.headers)

    def _open(self, content_type: str, status: int = 200) -> None:
        self._head(status, content_type, {"Transfer-Encoding": "chunked"})

    def _send(self, piece: bytes) -> None:
        """One write, one HTTP chunk."""
        if self._squeezer is not None:
            piece = self._squeezer.compress(piece) + self._squeezer.flush(zlib.Z_SYNC_FLUSH)
        self._write(piece, b"%x\r\n%b\r\n" % (len(piece), piece))

    def _close_body(self) -> None:
        if self._squeezer is not None:
            tail = self._squeezer.flush()
            self._write(tail, b"%x\r\n%b\r\n" % (len(tail), tail))
        self._connection.write(b"0\r\n\r\n")

    def _write(self, piece: bytes, framed: bytes) -> None:
        if piece and not self._connection.left:
            self._record.wrote(piece)
            self._connection.write(framed)

    def _error(self, die: Die) -> None:
        status, body = events.error_body(die, prompt_tokens=self.plan.prompt_tokens, context_tokens=self._context_tokens)
        self._squeezer = None
        self._head(status, "application/json", {"Content-Length": str(len(body))})
        self._write(body, body)

    async def _break_off(self) -> None:
        match self._script.die:
            case Die.RESET:
                await asyncio.sleep(BEFORE_RESET_S)
                self._connection.reset()
            case Die.HANG:
                await self._hang()
            case _:
                self._connection.close()

    async def _hang(self) -> None:
        """For ever, or until the client leaves, whatever the kind of call."""
        left = asyncio.Event()
        self._connection.on_left(left.set)
        await left.wait()
        self._record.gone(self._connection.left)
        raise asyncio.CancelledError


def _voice(record: CallRecord, plan: Plan, asked: bool) -> Voice:
    """By the path: Responses and Messages have voices of their own, all else speaks chat."""
    match record.path.partition("?")[0]:
        case "/v1/responses":
            return ResponsesEvents(plan, number=record.number, model=record.model, created=int(time.time()))
        case "/v1/messages":
            return MessagesEvents(plan, number=record.number, model=record.model)
    return Events(plan, number=record.number, model=record.model, created=int(time.time()), asked=asked)


async def _pause(ms: int) -> None:
    if ms:
        await asyncio.sleep(ms / 1000)
