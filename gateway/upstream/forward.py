"""The way to one engine: a call goes out once, byte for byte, and its answer comes back as it comes.

Nothing is ever sent again. What failed is told by evidence: `unreachable` (no connection came about: nothing was sent), `closed` (a pooled connection was
dead before a byte of an answer), `died` (the connection broke, or the answer is no HTTP), `timeout` with its phase. Leaving the context early closes the
connection at once, which is how an engine hears that it should stop.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final

import aiohttp
import orjson
from yarl import URL

from gateway.engines.engine import Engine
from gateway.errors import ConfigurationError, EngineFailure
from gateway.upstream.answer import BODY_BYTES_MAX, Answer
from gateway.upstream.helper_answer import parsed
from gateway.upstream.pool import PROGRESS, Progress, WholeBody, open_session, tls_context
from gateway.upstream.watch import Timeouts, Watch

RELAYED_HEADERS: Final = frozenset({"content-type", "cache-control", "retry-after"})
"""All of an engine's headers that an agent may see (the length is ours to give, the encoding is undone)."""
FORWARDED_HEADERS: Final = frozenset({"accept", "content-type"})
"""All of an agent's headers that an engine may see."""

HELPER_CALLS: Final = 4
"""Requests for counting at once to one engine."""
HELPER_TRIES: Final = 3
HELPER_S: Final = 15.0
"""Longest that a helper request may take, its wait for a turn included."""
HELPER_ANSWER_BYTES: Final = BODY_BYTES_MAX
PARSED_INLINE_BYTES: Final = 128 * 1024
"""A larger helper answer is parsed off the event loop."""

_NOTHING_SENT: Final = (aiohttp.ClientConnectorError, aiohttp.ClientConnectorDNSError, aiohttp.ClientSSLError, aiohttp.InvalidURL)


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
        self._base, self._tls = _base_of(name, address, ca_file)
        self._urls: dict[str, URL] = {}
        self._always = {"Accept-Encoding": "identity", **({"Authorization": f"Bearer {credential}"} if credential else {})}
        self._helper_turns = asyncio.Semaphore(helper_calls)
        self._helper_s = helper_s
        self._session: aiohttp.ClientSession | None = None
        self._client_timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.timeouts.connect_s, sock_read=None)

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
        sent = {"Content-Type": "application/json", **(headers or {}), **self._always}
        if call_id:
            sent["X-Request-Id"] = call_id
        return Sending(self, method, self._url(path), WholeBody(body, on_written) if body else None, sent)

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
        if self._session is not None:
            await self._session.close()
            self._session = None

    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = open_session(pool_idle_s=self.engine.pool_idle_s, tls=self._tls)
        return self._session

    @property
    def client_timeout(self) -> aiohttp.ClientTimeout:
        return self._client_timeout

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

    def _url(self, path: str) -> URL:
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = URL(self._base + path, encoded=True)
        return url


class Sending:
    """One request and its answer. Whatever way the block is left, nothing of it stays open."""

    __slots__ = ("_answer", "_body", "_headers", "_method", "_upstream", "_url")

    def __init__(self, upstream: Upstream, method: str, url: URL, body: WholeBody | None, headers: dict[str, str]) -> None:
        self._upstream = upstream
        self._method = method
        self._url = url
        self._body = body
        self._headers = headers
        self._answer: Answer | None = None

    async def __aenter__(self) -> Answer:
        loop = asyncio.get_running_loop()
        started = loop.time()
        progress = Progress()
        watch = Watch(loop, started, self._upstream.timeouts)
        mark = PROGRESS.set(progress)
        try:
            async with asyncio.timeout_at(watch.head_due):
                response = await self._request()
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise _failure(error, progress, watch.head_phase) from error
        finally:
            PROGRESS.reset(mark)
        self._body = None  # it is out, and an answer may take an hour
        connected_ms = round(((progress.connected_at or started) - started) * 1_000)
        self._answer = Answer(response, watch, started, connected_ms)
        return self._answer

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._answer is not None:
            self._answer.leave()

    async def _request(self) -> aiohttp.ClientResponse:
        return await self._upstream.session().request(
            self._method,
            self._url,
            data=self._body,
            headers=self._headers,
            allow_redirects=False,
            timeout=self._upstream.client_timeout,
        )


def _failure(error: Exception, progress: Progress, phase: str) -> EngineFailure:
    """Before the head of an answer."""
    what = type(error).__name__
    if isinstance(error, aiohttp.ConnectionTimeoutError) or (isinstance(error, TimeoutError) and progress.connected_at is None):
        return EngineFailure("timeout", "connect", "no connection to the engine in time")
    if isinstance(error, _NOTHING_SENT):
        return EngineFailure("unreachable", "", f"no connection to the engine: {what}")
    if isinstance(error, TimeoutError):
        return EngineFailure("timeout", phase, f"the engine took too long ({phase})")
    if progress.reused:
        return EngineFailure("closed", "", f"a pooled connection was dead: {what}")
    if progress.connected_at is None:
        return EngineFailure("unreachable", "", f"no connection to the engine: {what}")
    return EngineFailure("died", "", f"the engine gave no answer: {what}")


def _base_of(name: str, address: str, ca_file: str | None) -> tuple[str, ssl.SSLContext | None]:
    try:
        url = URL(address)
        if url.scheme not in ("http", "https") or not url.host or url.query_string or url.fragment or url.user:
            raise ValueError("it must be http:// or https://, a host, and at most a port and a path")
        tls = tls_context(ca_file) if url.scheme == "https" else None
    except ValueError as error:
        raise ConfigurationError(f"upstream {name!r}: address {address!r} can't be used: {error}") from error
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"upstream {name!r}: ca_file {ca_file!r} can't be used: {error}") from error
    return str(url).rstrip("/"), tls


def _dumped(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # lone surrogates and whole numbers above 64 bits, which the engine's reader takes
        return json.dumps(value, separators=(",", ":")).encode()


__all__ = ["FORWARDED_HEADERS", "RELAYED_HEADERS", "Answer", "Sending", "Timeouts", "Upstream"]
