"""One connection to an engine, over real sockets: when it serves again, and what of an answer's framing is held."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import uvloop

from gateway.engines import ENGINES
from gateway.errors import EngineFailure
from gateway.upstream.forward import Upstream
from gateway.upstream.watch import Timeouts
from tests.support.scripted_engine import Script, ScriptedEngine, Wire, scripted

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG = Timeouts(connect_s=5, first_byte_s=20, between_chunks_s=20, whole_s=30)


@pytest.fixture(scope="module", params=[asyncio.DefaultEventLoopPolicy(), uvloop.EventLoopPolicy()], ids=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    policy: asyncio.AbstractEventLoopPolicy = request.param
    return policy


@asynccontextmanager
async def facing(script: Script) -> AsyncIterator[tuple[Upstream, ScriptedEngine]]:
    async with scripted(script) as engine:
        upstream = Upstream(name="scripted", address=engine.address, engine=ENGINES["llama.cpp"], timeouts=LONG)
        try:
            yield upstream, engine
        finally:
            await upstream.close()


async def body_of(upstream: Upstream, body: bytes = b"{}") -> bytes:
    async with upstream.send("/v1/x", body) as answer:
        return await answer.read()


def saying(answer: bytes) -> Script:
    async def script(wire: Wire) -> None:
        while await wire.request():
            await wire.send(answer)

    return script


@pytest.mark.parametrize(
    ("answer", "connections"),
    [
        (OK, 1),
        (CHUNKED + b"2\r\n{}\r\n0\r\n\r\n", 1),
        (CHUNKED + b"2;name=value\r\n{}\r\n0\r\nTrailer: x\r\n\r\n", 1),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, 1),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", 3),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", 3),
        (OK + b"HTTP/1.1 200 OK\r\n", 3),
        (OK + b"junk", 3),
    ],
    ids=["length", "chunks", "extension and trailer", "interim", "close", "older HTTP", "a second answer", "junk behind it"],
)
async def test_a_connection_serves_again_only_where_its_answer_ended_in_order(answer: bytes, connections: int) -> None:
    async with facing(saying(answer)) as (upstream, engine):
        for _ in range(3):
            assert await body_of(upstream) == b"{}"
            await asyncio.sleep(0.01)
        assert engine.connections == connections


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\none ")
        await asyncio.sleep(0.02)
        await wire.send(b"two")

    async with facing(script) as (upstream, engine):
        assert await body_of(upstream) == b"one two"
        assert await body_of(upstream) == b"one two"
        assert engine.connections == 2


async def test_a_body_without_a_length_whose_connection_is_reset_died() -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\n\r\none")
        await asyncio.sleep(0.02)
        wire.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.reset()

    async with facing(script) as (upstream, _):
        with pytest.raises(EngineFailure) as caught:
            await body_of(upstream)
        assert caught.value.kind == "died"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 129 + b"Content-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 17_000 + b"\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nA: b\x00c\r\nContent-Length: 2\r\n\r\n{}",
    ],
    ids=["too many headers", "a large header", "an upgrade", "two lengths", "length and chunks", "a control character"],
)
async def test_a_head_that_is_out_of_bounds_or_ambiguous_died(answer: bytes) -> None:
    async with facing(saying(answer)) as (upstream, _):
        with pytest.raises(EngineFailure) as caught:
            await body_of(upstream)
        assert caught.value.kind == "died"


@pytest.mark.parametrize("endless", [b"T: " + b"x" * 8_000 + b"\r\n", b"x" * 8_000], ids=["trailers", "one trailer"])
async def test_trailers_without_end_are_not_held(endless: bytes) -> None:
    sent = 0

    async def script(wire: Wire) -> None:
        nonlocal sent
        await wire.request()
        await wire.send(CHUNKED + b"2\r\n{}\r\n0\r\n" + (b"" if endless.endswith(b"\n") else b"T: "))
        while sent < 64_000_000:
            await wire.send(endless)
            sent += len(endless)

    async with facing(script) as (upstream, _):
        with pytest.raises(EngineFailure) as caught:
            await body_of(upstream)
        assert caught.value.kind == "died"
    assert sent < 64_000_000


async def test_what_arrives_on_an_idle_connection_ends_it() -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(OK)
        await asyncio.sleep(0.05)
        await wire.send(OK)
        await wire.closed_by_client()

    async with facing(script) as (upstream, engine):
        assert await body_of(upstream) == b"{}"
        await asyncio.sleep(0.15)
        assert await body_of(upstream) == b"{}"
        assert engine.connections == 2


async def test_a_connection_whose_request_is_still_going_out_does_not_serve_again() -> None:
    async def script(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        await wire.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
        await wire.closed_by_client()

    async with facing(script) as (upstream, engine):
        for _ in range(2):
            async with upstream.send("/v1/x", b"x" * 20_000_000) as answer:
                assert answer.status == 413 and await answer.read() == b"{}"
        assert engine.connections == 2


async def test_a_pooled_connection_that_breaks_inside_its_answers_head_died() -> None:
    """An engine that said something has read the request: no dead connection."""

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(OK)
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-")

    async with facing(script) as (upstream, _):
        assert await body_of(upstream) == b"{}"
        with pytest.raises(EngineFailure) as caught:
            await body_of(upstream)
        assert caught.value.kind == "died"


async def test_an_engine_whose_reader_is_slow_is_not_read_on() -> None:
    sent = 0

    async def script(wire: Wire) -> None:
        nonlocal sent
        await wire.request()
        await wire.send(CHUNKED)
        while sent < 64_000_000:
            await wire.send(b"%x\r\n" % 65_536 + b"x" * 65_536 + b"\r\n")
            sent += 65_536
        await wire.send(b"0\r\n\r\n")

    async with facing(script) as (upstream, _), upstream.send("/v1/x", b"{}") as answer:
        chunks = answer.chunks()
        got = len(await anext(chunks))
        await asyncio.sleep(0.5)
        assert sent < 32_000_000, "the rest waits at the engine"
        async for data in chunks:
            got += len(data)
        assert got == 64_028_672 and answer.complete


@pytest.mark.parametrize("closes", [False, True], ids=["kept open", "closed"])
async def test_an_answer_that_nobody_asked_for_is_not_given_to_the_next_call_however_late_it_is_read(closes: bool) -> None:
    """It lies in the socket when the next call takes the connection: the loop had no time to read it."""
    stale = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 9\r\n\r\nnot yours"
    served = 0

    def serve(listener: socket.socket) -> None:
        nonlocal served
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            served += 1
            with one:
                one.recv(65_536)
                one.sendall(OK)
                if served == 1:
                    time.sleep(0.1)
                    one.sendall(stale)
                    if not closes:
                        one.settimeout(2)
                        with suppress(OSError):
                            one.recv(65_536)
                else:
                    time.sleep(0.2)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        upstream = Upstream(name="stale", address=f"http://127.0.0.1:{listener.getsockname()[1]}", engine=ENGINES["llama.cpp"], timeouts=LONG)
        try:
            assert await body_of(upstream) == b"{}"
            time.sleep(0.4)  # noqa: ASYNC251
            assert await body_of(upstream) == b"{}"
            assert served == 2
        finally:
            await upstream.close()
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


async def test_every_call_gets_its_own_answer_from_an_engine_that_says_too_much_at_any_moment() -> None:
    """A second answer behind the first, at once or later: it is nobody's."""
    numbers = iter(range(1_000))

    async def script(wire: Wire) -> None:
        while request := await wire.request():
            body = request.rpartition(b"\r\n\r\n")[2]
            own = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            extra = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled"
            match next(numbers) % 5:
                case 0:
                    await wire.send(own + extra)
                case 1:
                    await wire.send(own[:-2])
                    await wire.send(own[-2:] + extra[:30])
                case 2:
                    await wire.send(own)
                    await wire.send(extra)
                case 3:
                    await wire.send(own)
                    await asyncio.sleep(0.002)
                    await wire.send(extra)
                case _:
                    await wire.send(own)

    async with facing(script) as (upstream, engine):
        for number in range(60):
            body = b'{"call":%d}' % number
            assert await body_of(upstream, body) == body
            await asyncio.sleep(0.004)
        assert 24 < engine.connections < 60
