"""The mock engine itself: `async with MockEngine(…) as engine:` is a real server on a socket, with its script and its log at hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import orjson

from gateway.engines import ENGINES
from gateway.errors import ConfigurationError
from gateway.mock_engine import facts, tokens
from gateway.mock_engine.facts import Counters
from gateway.mock_engine.log import CallLog, CallRecord, moment
from gateway.mock_engine.play import Died, Player
from gateway.mock_engine.script import Playbook, Script, parse_playbook, parse_script
from gateway.mock_engine.turns import Turns
from gateway.mock_engine.wire import Connection, Request

GENERATES = frozenset(path for engine in ENGINES.values() for path in engine.paths.values())
"""Paths that play a script: chat, Responses and Messages by themselves, every other format with the raw bytes that a script holds."""


class MockEngine:
    """A scripted engine. `log` is what it saw, `playbook` what it does; both may be read and changed while it runs."""

    def __init__(
        self, script: Script | Playbook | dict[str, Any] | list[Any] | None = None, *, host: str = "127.0.0.1", port: int = 0, log: Path | None = None
    ) -> None:
        self.playbook = _playbook(script)
        self.log = CallLog(log)
        self.counters = Counters()
        self.port = port
        self._host = host
        self._turns = Turns(self.counters, lambda: self.playbook.slots)
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self.port}"

    def script(self, script: Script | dict[str, Any] | None = None, *, model: str = "", **fields: Any) -> None:
        """From the next call on: the default script, or a model's. `engine.script(output_tokens=5, gap_ms=10)`."""
        chosen = script if isinstance(script, Script) else parse_script({**(script or {}), **fields})
        if model:
            self.playbook.models[model] = chosen
        else:
            self.playbook.default = chosen

    def queue(self, *scripts: Script | dict[str, Any]) -> None:
        """For the next calls, one each, before the default."""
        self.playbook.queue.extend(one if isinstance(one, Script) else parse_script(one) for one in scripts)

    async def start(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self._answer, self._connections), self._host, self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """What runs is given up and stands in the log as `stopped`."""
        if self._server is not None:
            self._server.close()
        tasks = [task for connection in list(self._connections) if (task := connection.stop()) is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        self.log.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def saw(self, true_of: Callable[[CallLog], bool], timeout_s: float = 5.0) -> None:
        """Waits until something holds of the log. Raises TimeoutError, with the log's ends in its text."""
        deadline = time.monotonic() + timeout_s
        while not true_of(self.log):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the engine did not see it within {timeout_s:g} s: {[(r.path, r.end or 'runs') for r in self.log]}")
            await asyncio.sleep(0.005)

    # a request

    async def _answer(self, connection: Connection, request: Request) -> None:
        path = request.path.partition("?")[0]
        if path.startswith("/mock/"):
            return self._admin(connection, request.method, path, request.body)
        record = self.log.open(request.method, path, request.headers, request.body)
        if request.method == "POST" and path in GENERATES:
            return await self._chat(connection, record)
        if request.method == "POST":
            return await self._helper(connection, record)
        status, body = self._fact(path)
        self._reply(connection, status, body, "text/plain; version=0.0.4" if path == "/metrics" else "application/json", record)

    def _fact(self, path: str) -> tuple[int, bytes]:
        match path:
            case "/health" | "/v1/health":
                return facts.health(self.playbook)
            case "/v1/models" | "/models":
                return 200, facts.models(self.playbook)
            case "/props":
                return 200, facts.props(self.playbook)
            case "/slots" | "/metrics" if self.playbook.slots_status != 200:
                return self.playbook.slots_status, _error(self.playbook.slots_status, "this server does not tell what it works on")
            case "/slots":
                return 200, facts.slots(self.playbook, self.counters)
            case "/metrics":
                return 200, facts.metrics(self.counters)
        return 404, _error(404, "File Not Found")

    async def _chat(self, connection: Connection, record: CallRecord) -> None:
        try:
            body = record.json()
            record.model, record.stream = str(body.get("model", "")), bool(body.get("stream"))
            script = self.playbook.next_script(record.model)
            player = Player(connection, record, script, body, self.playbook.context_tokens)
        except (ValueError, TypeError, AttributeError) as error:
            return self._reply(connection, 400, _error(400, f"bad body: {error}"), "application/json", record)
        self._listen(connection, record, stops=not script.ignores_leaving and (record.stream or script.cancels_whole))
        end = "stopped"
        try:
            if not player.refused():
                async with self._turns.slot(record):
                    record.started = moment()
                    try:
                        await player.play()
                    finally:
                        self._turns.book(record)
            end = f"refused:{record.status}" if record.status != 200 else "completed"
        except Died as death:
            end = f"died:{death}"
        finally:
            if record.left is not None and end == "stopped":
                end = "client_left"
            self.log.finish(record, end)

    def _listen(self, connection: Connection, record: CallRecord, *, stops: bool) -> None:
        task = asyncio.current_task()

        def left() -> None:
            record.gone(connection.left)
            if stops and task is not None:
                task.cancel()

        connection.on_left(left)

    async def _helper(self, connection: Connection, record: CallRecord) -> None:
        try:
            await asyncio.sleep(self.playbook.helper_ms / 1000)
            status, body = (
                self._count(record) if self.playbook.helper_status == 200 else (self.playbook.helper_status, _error(self.playbook.helper_status, "no"))
            )
        except (ValueError, TypeError, AttributeError) as error:
            status, body = 400, _error(400, f"bad body: {error}")
        self._reply(connection, status, body, "application/json", record)

    def _count(self, record: CallRecord) -> tuple[int, bytes]:
        match record.path:
            case "/apply-template":
                return 200, orjson.dumps({"prompt": tokens.render(record.json())})
            case "/tokenize":
                asked = record.json()
                return 200, orjson.dumps({"tokens": tokens.tokenize(str(asked.get("content", "")), asked.get("parse_special") is not False)})
            case "/v1/chat/completions/input_tokens" | "/v1/messages/count_tokens" | "/v1/responses/input_tokens":
                return 200, orjson.dumps({"object": "response.input_tokens", "input_tokens": tokens.count(tokens.render(record.json()))})
        return 404, _error(404, "File Not Found")

    def _admin(self, connection: Connection, method: str, path: str, body: bytes) -> None:
        """`GET|DELETE /mock/log`, `PUT /mock/script` (in place of all), `POST /mock/script` (one or more behind the list)."""
        status, answer = 200, b"{}"
        try:
            match method, path:
                case "GET", "/mock/log":
                    answer = orjson.dumps([record.as_json() for record in self.log])
                case "DELETE", "/mock/log":
                    self.log.clear()
                case "PUT", "/mock/script":
                    self.playbook = parse_playbook(orjson.loads(body))
                    self._turns.wake()
                case "POST", "/mock/script":
                    told = orjson.loads(body)
                    self.queue(*(told if isinstance(told, list) else [told]))
                case _:
                    status, answer = 404, _error(404, "no such admin path")
        except (ConfigurationError, ValueError, TypeError, KeyError, AttributeError) as error:
            status, answer = 400, _error(400, str(error))
        self._reply(connection, status, answer, "application/json", None)

    def _reply(self, connection: Connection, status: int, body: bytes, content_type: str, record: CallRecord | None) -> None:
        connection.head(status, {"Content-Type": content_type, "Content-Length": str(len(body)), "Server": "mock-engine"})
        if record is not None:
            record.status = status
            record.wrote(body)
        connection.write(body)
        if record is not None:
            self.log.finish(record, "completed" if status == 200 else f"refused:{status}")


def _playbook(script: Script | Playbook | dict[str, Any] | list[Any] | None) -> Playbook:
    match script:
        case None:
            return Playbook()
        case Playbook():
            return script
        case Script():
            return Playbook(default=script)
    return parse_playbook(script)


def _error(status: int, message: str) -> bytes:
    kind = "not_found_error" if status == 404 else "invalid_request_error"
    return orjson.dumps({"error": {"code": status, "message": message, "type": kind}})
