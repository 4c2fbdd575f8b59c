"""Chunks that are taken where they arrive, over real sockets: nothing is lost, doubled or turned round, and what ends an answer is told as ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from gateway.engines import ENGINES
from gateway.errors import EngineFailure
from gateway.upstream.answer import Answer
from gateway.upstream.forward import Upstream
from gateway.upstream.watch import Timeouts
from tests.support.scripted_engine import Script, ScriptedEngine, Wire, scripted
from tests.support.waiting import eventually_async

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
LONG = Timeouts(connect_s=5, first_byte_s=20, between_chunks_s=20, whole_s=30)


@pytest.fixture(scope="module", params=[asyncio.DefaultEventLoopPolicy(), uvloop.EventLoopPolicy()], ids=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    policy: asyncio.AbstractEventLoopPolicy = request.param
    return policy


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@asynccontextmanager
async def facing(script: Script, timeouts: Timeouts = LONG) -> AsyncIterator[tuple[Upstream, ScriptedEngine]]:
    async with scripted(script) as engine:
        upstream = Upstream(name="scripted", address=engine.address, engine=ENGINES["llama.cpp"], timeouts=timeouts)
        try:
            yield upstream, engine
        finally:
            await upstream.close()


class Reader:
    """Takes what it is told to, and keeps all in the order in which it got it."""

    whole: Callable[[bytes], bool] | None = None
    passed_at = 0.0

    def __init__(self, takes: bool = True) -> None:
        self.takes = takes
        self.got = bytearray()
        self.taken = self.left = 0

    def at_once(self, data: bytes) -> bool:
        if not self.takes:
            return False
        self.got += data
        self.taken += 1
        return True

    async def read(self, answer: Answer, pause_s: float = 0.0) -> None:
        async for data in answer.chunks(self):
            if pause_s:
                await asyncio.sleep(pause_s)
            self.got += data
            self.left += 1


class WholeReader(Reader):
    """Takes chunks with their frames wherever it may. `wholes`: as they came."""

    def __init__(self) -> None:
        super().__init__()
        self.wholes: list[bytes] = []
        self.whole = self.take

    def take(self, data: bytes) -> bool:
        size, _, rest = data.partition(b"\r\n")
        if len(rest) < 3 or rest[-2:] != b"\r\n" or size != b"%x" % (len(rest) - 2):
            return False
        self.wholes.append(data)
        self.got += rest[:-2]
        self.passed_at = asyncio.get_running_loop().time()
        return True


def paced(count: int, end: bytes = END) -> Script:
    """So slowly that each piece arrives by itself."""

    async def script(wire: Wire) -> None:
        while await wire.request():
            await wire.send(HEAD)
            for number in range(count):
                await wire.send(chunk(b"%04d." % number))
                await asyncio.sleep(0.005)
            await wire.send(end)

    return script


def all_of(count: int) -> bytes:
    return b"".join(b"%04d." % number for number in range(count))


async def test_what_is_taken_wakes_nobody_and_the_end_is_told() -> None:
    reader = Reader()
    async with facing(paced(40)) as (upstream, _), upstream.send("/v1/x", b"{}") as answer:
        await reader.read(answer)
        assert answer.complete
    assert reader.got == all_of(40)
    assert reader.left <= 2 < reader.taken, "the first byte is left to the reader, and what came with the head"


async def test_what_is_left_comes_to_the_reader_in_its_place() -> None:
    class Moody(Reader):
        def at_once(self, data: bytes) -> bool:
            self.takes = not self.takes
            return super().at_once(data)

    reader = Moody()
    async with facing(paced(60)) as (upstream, _), upstream.send("/v1/x", b"{}") as answer:
        await reader.read(answer)
    assert reader.got == all_of(60)
    assert reader.taken > 5 < reader.left


@pytest.mark.parametrize("takes", [True, False])
async def test_more_than_the_buffer_holds_while_the_reader_is_slow_arrives_in_order(takes: bool) -> None:
    pieces = [b"%07d." % number for number in range(200_000)]

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD)
        for at in range(0, len(pieces), 5_000):
            await wire.send(b"".join(map(chunk, pieces[at : at + 5_000])))
        await wire.send(END)

    reader = Reader(takes)
    async with facing(script) as (upstream, _), upstream.send("/v1/x", b"{}") as answer:
        await reader.read(answer, pause_s=0.02)
    assert reader.got == b"".join(pieces)


@pytest.mark.parametrize("kind", [Reader, WholeReader])
async def test_a_connection_that_breaks_behind_chunks_that_were_taken_is_told(kind: type[Reader]) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD)
        for number in range(6):
            await wire.send(chunk(b"%04d." % number))
            await asyncio.sleep(0.005)
        wire.reset()

    reader = kind()
    async with facing(script) as (upstream, _), upstream.send("/v1/x", b"{}") as answer:
        with pytest.raises(EngineFailure) as caught:
            await reader.read(answer)
        assert not answer.complete
    assert caught.value.kind == "died" and reader.got == all_of(6)
    assert not isinstance(reader, WholeReader) or reader.wholes


async def test_framing_that_breaks_behind_chunks_that_were_taken_is_told() -> None:
    reader = Reader()
    async with facing(paced(5, end=b"no length\r\n")) as (upstream, _), upstream.send("/v1/x", b"{}") as answer:
        with pytest.raises(EngineFailure) as caught:
            await reader.read(answer)
    assert caught.value.kind == "died" and reader.got == all_of(5)


@pytest.mark.parametrize("kind", [Reader, WholeReader])
async def test_silence_is_counted_from_the_last_chunk_that_was_taken(kind: type[Reader]) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD)
        for number in range(8):  # longer in all than the engine may be silent
            await wire.send(chunk(b"%04d." % number))
            await asyncio.sleep(0.1)
        await wire.closed_by_client(10)

    reader = kind()
    timeouts = Timeouts(connect_s=5, first_byte_s=20, between_chunks_s=0.5, whole_s=30)
    async with facing(script, timeouts) as (upstream, _), upstream.send("/v1/x", b"{}") as answer:
        with pytest.raises(EngineFailure) as caught:
            await reader.read(answer)
    assert (caught.value.kind, caught.value.phase) == ("timeout", "between_chunks") and reader.got == all_of(8)
    assert not isinstance(reader, WholeReader) or len(reader.wholes) > 4


async def test_what_the_taking_raises_reaches_the_reader() -> None:
    class Choked(Exception):
        pass

    class Choking(Reader):
        def at_once(self, data: bytes) -> bool:
            raise Choked

    async with facing(paced(5)) as (upstream, _), upstream.send("/v1/x", b"{}") as answer:
        with pytest.raises(Choked):
            async for _ in answer.chunks(Choking()):
                pass


async def test_a_connection_that_serves_again_tells_its_first_reader_nothing() -> None:
    first, second = Reader(), Reader()
    async with facing(paced(10)) as (upstream, engine):
        for reader in (first, second):
            async with upstream.send("/v1/x", b"{}") as answer:
                await reader.read(answer)
    assert engine.connections == 1
    assert first.got == second.got == all_of(10)


async def test_a_reader_that_is_cancelled_gets_nothing_more() -> None:
    reader = Reader()
    async with facing(paced(400)) as (upstream, _), upstream.send("/v1/x", b"{}") as answer:
        task = asyncio.create_task(reader.read(answer))
        await eventually_async(lambda: reader.taken >= 3, "three chunks were taken")
        task.cancel()
        await asyncio.wait({task})
        so_far = bytes(reader.got)
        await asyncio.sleep(0.05)
        assert task.cancelled() and reader.got == so_far


async def test_between_two_chunks_what_comes_in_is_offered_with_its_frame() -> None:
    reader = WholeReader()
    async with facing(paced(40)) as (upstream, _), upstream.send("/v1/x", b"{}") as answer:
        await reader.read(answer)
        assert answer.complete
    assert reader.got == all_of(40) and len(reader.wholes) > 30
    assert reader.taken + reader.left >= 2, "the first is parsed: nobody knows before it where a chunk begins"


@pytest.mark.parametrize("cut", [*range(1, 17), -1, -2, -3])
async def test_wherever_a_chunk_is_cut_its_rest_is_parsed(cut: int) -> None:
    """Also where its rest, or what is inside, looks like a chunk by itself."""
    inside = b"5\r\nabcde\r\n"
    pieces = [chunk(b"%04d." % number) if number % 3 else chunk(inside) for number in range(30)]

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD)
        for number, piece in enumerate(pieces):
            for part in (piece[:cut], piece[cut:]) if number % 2 else (piece,):
                await wire.send(part)
                await asyncio.sleep(0.003)
        await wire.send(END)

    reader = WholeReader()
    async with facing(script) as (upstream, _), upstream.send("/v1/x", b"{}") as answer:
        await reader.read(answer)
        assert answer.complete
    assert reader.got == b"".join(inside if number % 3 == 0 else b"%04d." % number for number in range(30))


async def test_in_a_body_that_comes_in_no_chunks_nothing_is_offered_whatever_came_before_it() -> None:
    looks = [b"5\r\nabcde\r\n"] * 20
    plain = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(b"".join(looks))

    async def script(wire: Wire) -> None:
        for head, sent, end in ((HEAD, [chunk(b"%04d." % number) for number in range(10)], END), (plain, looks, b"")):
            await wire.request()
            await wire.send(head)
            for piece in sent:
                await wire.send(piece)
                await asyncio.sleep(0.003)
            if end:
                await wire.send(end)

    first, second = WholeReader(), WholeReader()
    async with facing(script) as (upstream, engine):
        for reader in (first, second):
            async with upstream.send("/v1/x", b"{}") as answer:
                await reader.read(answer)
        assert engine.connections == 1
    assert first.wholes and first.got == all_of(10)
    assert not second.wholes and second.got == b"".join(looks)
