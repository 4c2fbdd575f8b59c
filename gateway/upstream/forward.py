"""The way to one engine: a call goes out once, byte for byte, and its answer comes back as it comes.

Nothing is ever sent again. What failed is told by evidence: `unreachable` (no connection came about: nothing was sent), `closed` (a pooled connection was
dead before a byte of an answer), `died` (the connection broke, or the answer is no HTTP), `timeout` with its phase. Leaving the context early closes the
connection at once, which is how an engine hears that it should stop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final

import orjson

from gateway.engines.engine import Engine
from gateway.errors import ConfigurationError, EngineFailure
from gateway.upstream.answer import BODY_BYTES_MAX, Answer
from gateway.upstream.connection import EngineConnection
from gateway.upstream.helper_answer import parsed
from gateway.upstream.pool import Address, Pool, read_address
from gateway.upstream.watch import Timeouts, Watch

RELAYED_HEADERS: Final = {"content-type": "Content-Type", "cache-control": "Cache-Control", "retry-after": "Retry-After"}
"""All of an engine's headers that an agent may see (the length is ours to give, the encoding is undone)."""
FORWARDED_HEADERS: Final = frozenset({"accept", "content-type"})
"""All of an agent's headers that an engine may see."""

OPENINGS_MAX: Final = 64
"""Heads that are remembered; an engine has fewer paths."""
HELPER_CALLS: Final = 4
"""Requests for counting at once to one engine."""
HELPER_TRIES: Final = 3
HELPER_S: Final = 15.0
"""Longest that a helper request may take, its wait for a turn included."""
HELPER_ANSWER_BYTES: Final = BODY_BYTES_MAX
PARSED_INLINE_BYTES: Final = 128 * 1024
"""A larger helper answer is parsed off the event loop."""


class Upstream:
    """One engine at one address. Use inside a running loop; `close()` at the end."""

    def __init__(
        self,
        *,
        name: str,
        address: str,
        engine: Engine,
        timeouts: Timeouts | None = None,
        credential: str | None = None,
        ca_file: str | None = None,
        helper_calls: int = HELPER_CALLS,
        helper_s: float = HELPER_S,
    ) -> None:
        """`credential` is the secret itself. Raises ConfigurationError for an address or `ca_file` that can't be used."""
        self.name = name
        self.engine = engine
        self.timeouts = timeouts or Timeouts()
        self._address = _address_of(name, address, ca_file)
        self._always = {"Host": self._address.shown, "Accept-Encoding": "identity", **({"Authorization": f"Bearer {credential}"} if credential else {})}
        self._helper_turns = asyncio.Semaphore(helper_calls)
        self._helper_s = helper_s
        self._pool = Pool(self._address, engine.pool_idle_s)
        self._openings: dict[tuple[str, str, tuple[tuple[str, str], ...]], bytes] = {}
        """How heads begin that were sent before: the same but for the call's id and the length."""

    def send(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        call_id: str = "",
        *,
        method: str = "POST",
        on_written: Callable[[], object] | None = None,
    ) -> Sending:
        """`async with upstream.send(…) as answer`. Entering raises EngineFailure. `on_written`: called when the loop was given the whole request."""
        asked = (method, path, tuple(headers.items()) if headers else ())
        opening = self._openings.get(asked)
        if opening is None:
            sent = {"Content-Type": "application/json", **(headers or {}), **self._always}
            opening = _lines(f"{method} {self._address.path}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()))
            if len(self._openings) < OPENINGS_MAX:
                self._openings[asked] = opening
        head = opening + _lines(f"X-Request-Id: {call_id}") if call_id else opening
        if body:
            head += b"Content-Length: %d\r\n" % len(body)
        return Sending(self._pool, self.timeouts, head + b"\r\n", body, on_written)

    async def post_json(self, path: str, value: object) -> tuple[int, object]:
        """A helper request: (status, JSON; None where the answer is none). Raises EngineFailure."""
        try:
            async with asyncio.timeout(self._helper_s), self._helper_turns:
                return await self._ask_again("POST", path, _dumped(value))
        except TimeoutError as error:
            raise self._too_long(path) from error

    async def get_json(self, path: str) -> tuple[int, object]:
        """As post_json, but waits for no turn: an engine that counts a lot is not to be taken for silent."""
        try:
            async with asyncio.timeout(self._helper_s):
                return await self._ask("GET", path, b"")
        except TimeoutError as error:
            raise self._too_long(path) from error

    async def close(self) -> None:
        self._pool.close()

    def _too_long(self, path: str) -> EngineFailure:
        return EngineFailure("timeout", "helper", f"{path} took longer than {self._helper_s} s")

    async def _ask_again(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        """Again where a pooled connection was dead: engines close one after so many requests, and a helper request changes nothing there."""
        for _ in range(HELPER_TRIES - 1):
            try:
                return await self._ask(method, path, body)
            except EngineFailure as failure:
                if failure.kind != "closed":
                    raise
        return await self._ask(method, path, body)

    async def _ask(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        async with self.send(path, body, method=method) as answer:
            data = await answer.read(HELPER_ANSWER_BYTES)
        if len(data) > PARSED_INLINE_BYTES:
            return answer.status, await asyncio.get_running_loop().run_in_executor(None, parsed, data)
        return answer.status, parsed(data)


class Sending:
    """One request and its answer. Whatever way the block is left, nothing of it stays open."""

    __slots__ = ("_answer", "_body", "_head", "_on_written", "_pool", "_timeouts")

    def __init__(self, pool: Pool, timeouts: Timeouts, head: bytes, body: bytes, on_written: Callable[[], object] | None) -> None:
        self._pool = pool
        self._timeouts = timeouts
        self._head = head
        self._body = body
        self._on_written = on_written
        self._answer: Answer | None = None

    async def __aenter__(self) -> Answer:
        loop = asyncio.get_running_loop()
        watch = Watch(loop, loop.time(), self._timeouts)
        connection, connected_ms = self._pool.take(), 0
        if connection is None:
            connection = await self._connected(watch)
            connected_ms = round((loop.time() - watch.started) * 1_000)
        answer, body = Answer(connection, watch, connected_ms), self._body
        self._body = b""  # it goes out, and an answer may take an hour
        await answer.asked(self._head, body, self._on_written)
        self._answer = answer
        return answer

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._answer is not None:
            self._answer.leave()

    async def _connected(self, watch: Watch) -> EngineConnection:
        """Whatever fails here, nothing was sent."""
        try:
            async with asyncio.timeout_at(min(watch.started + self._timeouts.connect_s, watch.head_due)):
                return await self._pool.connect()
        except TimeoutError as error:
            raise EngineFailure("timeout", "connect", "no connection to the engine in time") from error
        except OSError as error:
            raise EngineFailure("unreachable", "", f"no connection to the engine: {type(error).__name__}") from error


def _lines(*lines: str) -> bytes:
    """Of a head. Raises ValueError where something in one would end it."""
    text = "\r\n".join(lines)
    if text.count("\n") + text.count("\r") + text.count("\0") != 2 * (len(lines) - 1):
        raise ValueError("a header holds the end of a line")
    return text.encode("utf-8", "surrogateescape") + b"\r\n"


def _address_of(name: str, address: str, ca_file: str | None) -> Address:
    try:
        return read_address(address, ca_file)
    except ValueError as error:
        raise ConfigurationError(f"upstream {name!r}: address {address!r} can't be used: {error}") from error
    except OSError as error:  # which ssl.SSLError is too
        raise ConfigurationError(f"upstream {name!r}: ca_file {ca_file!r} can't be used: {error}") from error


def _dumped(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # lone surrogates and whole numbers above 64 bits, which the engine's reader takes
        return json.dumps(value, separators=(",", ":")).encode()


__all__ = ["FORWARDED_HEADERS", "RELAYED_HEADERS", "Answer", "Sending", "Timeouts", "Upstream"]
