"""An engine that frames its answers as nobody should, behind a real gateway: how each call ends for its agent and on record, and that the next one, on another
connection, gets its own answer.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, Self

import pytest

from tests.support import record
from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.raw_http import CHAT, chat_once

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def answer_of(text: str) -> bytes:
    message = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"choices": [message], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}).encode()


GOOD = answer_of("own")
SMUGGLED = answer_of("smuggled")
LENGTH = b"Content-Length: %d\r\n" % len(GOOD)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(GOOD), GOOD)
BEHIND = OK + b"Content-Length: %d\r\n\r\n%s" % (len(SMUGGLED), SMUGGLED)
DIED = {
    "a length and chunks": OK + LENGTH + CHUNKED + b"\r\n" + CHUNKS,
    "two lengths": OK + LENGTH + b"Content-Length: 2\r\n\r\n" + GOOD,
    "a length that is not reached": OK + b"Content-Length: %d\r\n\r\n%s" % (len(GOOD) + 5, GOOD),
    "interim answers without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000,
    "headers without end": OK + b"X: y\r\n" * 50_000,
    "a header without end": OK + b"X: " + b"y" * 500_000,
    "a chunk size that is none": OK + CHUNKED + b"\r\nzz\r\n" + GOOD,
    "an extension without end": OK + CHUNKED + b"\r\n2;" + b"x" * 500_000,
    "trailers without end": OK + CHUNKED + b"\r\n" + CHUNKS[:-2] + b"X: y\r\n" * 50_000,
    "an upgrade": b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "nothing": b"",
    "half a head": OK,
}
OVERLONG = {
    "another answer behind it": OK + LENGTH + b"\r\n" + GOOD + BEHIND,
    "another answer behind its chunks": OK + CHUNKED + b"\r\n" + CHUNKS + BEHIND,
    "more than its length": OK + LENGTH + b"\r\n" + GOOD + b"}" * 1_000,
}


class HostileEngine:
    """Answers each call with `says`, and closes where it does not `keep`; whatever else is asked is a list of models."""

    def __init__(self) -> None:
        self.says = b""
        self.keeps = True
        self.calls: list[int] = []
        """The connection of each call."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        number = 0
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            number += 1
            threading.Thread(target=self._talk, args=(one, number), daemon=True).start()

    def _talk(self, one: socket.socket, number: int) -> None:
        with closing(one), suppress(OSError):
            one.settimeout(60)
            reader = one.makefile("rb")
            while line := reader.readline():
                length = 0
                while (header := reader.readline()) not in (b"\r\n", b""):
                    if header.lower().startswith(b"content-length:"):
                        length = int(header.split(b":")[1])
                reader.read(length)
                if CHAT.encode() not in line:
                    one.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{"data":[{"id":"mock"}]}')
                    continue
                self.calls.append(number)
                one.sendall(self.says)
                if not self.keeps:
                    return


@pytest.fixture(scope="module")
def engine() -> Iterator[HostileEngine]:
    with HostileEngine() as hostile:
        yield hostile


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, engine: HostileEngine) -> Iterator[GatewayProcess]:
    policy: Any = {"models": {"mock": {"default_output_tokens": 64, "counter": "bytes"}}}
    with GatewayProcess(tmp_path_factory.mktemp("hostile"), engine.url, engine="generic", policy=policy) as process:
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.process.output


@pytest.fixture(scope="module")
def run(gateway: GatewayProcess) -> OpenedRun:
    return gateway.opened("c1", "r1")


def content(answer: Any) -> str:
    return str(answer.json()["choices"][0]["message"]["content"])


@pytest.mark.parametrize("name", DIED | OVERLONG)
def test_a_hostile_answer_ends_its_call_and_its_connection_and_no_other_call(gateway: GatewayProcess, engine: HostileEngine, run: OpenedRun, name: str) -> None:
    engine.calls.clear()
    engine.says, engine.keeps = (DIED | OVERLONG)[name], name in OVERLONG
    answer = chat_once(gateway.port, run.key, max_tokens=5)
    row = max(record.calls(gateway), key=lambda one: one["call_id"])
    if name in DIED:
        how = "engine_closed" if name == "nothing" else "engine_died"  # on a kept connection: it may have been dead before
        assert (answer.status, answer.json()["error"]["code"]) == (502, how)
        assert (row["outcome"], row["charged_requests"]) == (how, 1)
    else:
        assert (answer.status, content(answer), row["outcome"], row["output_tokens"]) == (200, "own", "completed", 2)
    engine.says, engine.keeps = OK + LENGTH + b"\r\n" + GOOD, True
    for _ in range(2):
        own = chat_once(gateway.port, run.key, max_tokens=5)
        assert (own.status, content(own)) == (200, "own")
    first, *others = engine.calls
    assert first not in others, "the connection served again"
    assert others[0] == others[1], "one whose answer was in order does"


def test_a_redirect_is_not_followed(gateway: GatewayProcess, engine: HostileEngine, run: OpenedRun) -> None:
    with HostileEngine() as elsewhere:
        engine.says = f"HTTP/1.1 307 Elsewhere\r\nLocation: {elsewhere.url}{CHAT}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
        answer = chat_once(gateway.port, run.key, max_tokens=5)
        assert answer.status in (307, 502) and "location" not in answer.headers
        assert elsewhere.calls == []
