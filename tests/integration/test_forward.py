"""What a call meets on its way to an engine, over real sockets: each way to fail is told by evidence, and nothing is left open."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
import uvloop

from gateway.engines import ENGINES
from gateway.errors import ConfigurationError, EngineFailure
from gateway.upstream.forward import Upstream
from gateway.upstream.watch import Timeouts
from tests.support.scripted_engine import Script, ScriptedEngine, Wire, scripted


@pytest.fixture(scope="module", params=[asyncio.DefaultEventLoopPolicy(), uvloop.EventLoopPolicy()], ids=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """The gateway serves on uvloop; tests and tools may run without."""
    policy: asyncio.AbstractEventLoopPolicy = request.param
    return policy


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG = Timeouts(connect_s=5, first_byte_s=20, between_chunks_s=20, whole_s=30)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def whole(body: bytes, status: str = "200 OK", headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s" % (status.encode(), headers, len(body), body)


@asynccontextmanager
async def reaching(address: str, timeouts: Timeouts = LONG, **more: object) -> AsyncIterator[Upstream]:
    upstream = Upstream(name="scripted", address=address, engine=ENGINES["llama.cpp"], timeouts=timeouts, **more)  # type: ignore[arg-type]
    try:
        yield upstream
    finally:
        await upstream.close()


@asynccontextmanager
async def facing(script: Script, timeouts: Timeouts = LONG, **more: object) -> AsyncIterator[tuple[Upstream, ScriptedEngine]]:
    async with scripted(script) as engine, reaching(engine.address, timeouts, **more) as upstream:
        yield upstream, engine


async def body_of(upstream: Upstream, body: bytes = b"{}") -> bytes:
    async with upstream.send("/v1/chat/completions", body) as answer:
        return b"".join([data async for data in answer.chunks()])


async def failure_of(upstream: Upstream, body: bytes = b"{}") -> tuple[str, str]:
    with pytest.raises(EngineFailure) as caught:
        await body_of(upstream, body)
    return caught.value.kind, caught.value.phase


@pytest.mark.parametrize("size", [2, 60_000, 3_000_000])
async def test_a_body_goes_out_once_and_byte_for_byte_with_our_headers_only(size: int) -> None:
    seen: list[bytes] = []

    async def script(wire: Wire) -> None:
        while request := await wire.request():
            seen.append(request)
            await wire.send(whole(b'{"ok":1}'))

    body = b'{"a":"' + b"\xc3\xa9" * (size // 2) + b'"}'
    async with facing(script, credential="s3cret") as (upstream, _), upstream.send("/v1/x", body, {"Accept": "text/event-stream"}, "call-1") as answer:
        assert (answer.status, answer.content_type, answer.content_encoding) == (200, "application/json", "identity")
        assert await answer.read() == b'{"ok":1}'
        assert answer.complete and answer.first_byte_ms is not None
    (request,) = seen
    head, _, sent = request.partition(b"\r\n\r\n")
    assert sent == body
    names = sorted(line.split(b":")[0].lower() for line in head.split(b"\r\n")[1:])
    assert names == [b"accept", b"accept-encoding", b"authorization", b"content-length", b"content-type", b"host", b"x-request-id"]
    assert b"Accept-Encoding: identity" in head and b"X-Request-Id: call-1" in head and b"Authorization: Bearer s3cret" in head


async def test_chunks_come_as_they_are_sent_not_at_the_end() -> None:
    go = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD + chunk(b"data: 1\n\n"))
        await go.wait()
        await wire.send(chunk(b"data: 2\n\n") + b"0\r\n\r\n")

    async with facing(script) as (upstream, _), upstream.send("/v1/x", b"{}") as answer:
        chunks = answer.chunks()
        assert await anext(chunks) == b"data: 1\n\n"
        assert not answer.complete
        go.set()
        assert [data async for data in chunks] == [b"data: 2\n\n"]
        assert answer.complete


async def test_a_refused_connection_is_unreachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with reaching(f"http://127.0.0.1:{port}") as upstream:
        assert await failure_of(upstream) == ("unreachable", "")


async def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    async with reaching("http://no-such-host.invalid:80") as upstream:
        assert await failure_of(upstream) == ("unreachable", "")


async def test_a_connection_that_is_never_accepted_is_a_timeout_of_connect() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = []
        for _ in range(4):  # fill the backlog, so that the next SYN is dropped
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(full.getsockname())
            waiting.append(one)
        async with reaching(f"http://127.0.0.1:{full.getsockname()[1]}", Timeouts(connect_s=0.3, first_byte_s=9, between_chunks_s=9, whole_s=9)) as upstream:
            assert await failure_of(upstream) == ("timeout", "connect")
        for one in waiting:
            one.close()


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"])
async def test_a_death_before_the_head_of_the_answer_on_a_new_connection_is_died(said: bytes, reset: bool) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(said)
        if reset:
            wire.reset()

    async with facing(script) as (upstream, engine):
        assert await failure_of(upstream) == ("died", "")
        assert engine.connections == 1


@pytest.mark.parametrize("reset", [False, True])
async def test_a_dead_pooled_connection_is_closed_and_the_call_is_not_sent_again(reset: bool) -> None:
    seen: list[bytes] = []

    async def script(wire: Wire) -> None:
        seen.append(await wire.request())
        await wire.send(whole(b"{}"))
        seen.append(await wire.request())
        if reset:
            wire.reset()

    async with facing(script) as (upstream, engine):
        assert await body_of(upstream, b"first") == b"{}"
        assert await failure_of(upstream, b"second") == ("closed", "")
        assert engine.connections == 1
        assert [request.rpartition(b"\r\n")[2] for request in seen] == [b"first", b"second"]


async def test_a_helper_request_on_a_dead_pooled_connection_is_sent_again() -> None:
    seen: list[bytes] = []

    async def script(wire: Wire) -> None:
        seen.append(await wire.request())
        await wire.send(whole(b'{"n":1}'))
        seen.append(await wire.request())
        wire.reset()

    async with facing(script) as (upstream, engine):
        for tries in range(3):
            assert await upstream.post_json("/count", {"tries": tries}) == (200, {"n": 1})
        assert engine.connections == 3
    assert [request.rpartition(b"\r\n")[2] for request in seen if request] == [b'{"tries":%d}' % tries for tries in (0, 1, 1, 2, 2)]


async def test_a_pooled_connection_is_not_used_after_its_idle_limit() -> None:
    async def script(wire: Wire) -> None:
        while await wire.request():
            await wire.send(whole(b"{}"))

    async with facing(script) as (upstream, engine):
        await body_of(upstream)
        await body_of(upstream)
        assert engine.connections == 1
        await asyncio.sleep(upstream.engine.pool_idle_s + 0.3)
        await body_of(upstream)
        assert engine.connections == 2


@pytest.mark.parametrize(
    "rest",
    [b"", chunk(b"data: 2\n\n"), b"40\r\ndata: 2", b"zz\r\n\r\n", b"5\r\nabcdefgh\r\n"],
    ids=["between chunks", "no last chunk", "inside a chunk", "no chunk size", "a wrong chunk size"],
)
async def test_a_chunked_body_without_its_end_died_after_what_was_delivered(rest: bytes) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD + chunk(b"data: 1\n\n"))
        await asyncio.sleep(0.05)
        await wire.send(rest)

    async with facing(script) as (upstream, _):
        got = b""
        with pytest.raises(EngineFailure) as caught:
            async with upstream.send("/v1/x", b"{}") as answer:
                async for data in answer.chunks():
                    got += data
        assert caught.value.kind == "died"
        assert got.startswith(b"data: 1\n\n") and not answer.complete


async def test_a_body_shorter_than_its_length_died() -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"a":')

    async with facing(script) as (upstream, _):
        assert await failure_of(upstream) == ("died", "")


async def test_what_is_no_http_died() -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")

    async with facing(script) as (upstream, _):
        assert await failure_of(upstream) == ("died", "")


async def test_a_huge_header_died_and_is_not_held() -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\nX-Big: " + b"a" * 2_000_000 + b"\r\n\r\n")

    async with facing(script) as (upstream, _):
        assert await failure_of(upstream) == ("died", "")


async def never(wire: Wire) -> None:
    await wire.request()
    await wire.reader.read()


async def head_only(wire: Wire) -> None:
    await wire.request()
    await wire.send(HEAD)
    await wire.reader.read()


async def one_chunk(wire: Wire) -> None:
    await wire.request()
    await wire.send(HEAD + chunk(b"data: 1\n\n"))
    await wire.reader.read()


async def dripping(wire: Wire) -> None:
    await wire.request()
    await wire.send(HEAD)
    while True:
        await wire.send(chunk(b":\n\n"))
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("script", "timeouts", "phase"),
    [
        (never, Timeouts(connect_s=5, first_byte_s=0.3, between_chunks_s=9, whole_s=9), "first_byte"),
        (head_only, Timeouts(connect_s=5, first_byte_s=0.3, between_chunks_s=9, whole_s=9), "first_byte"),
        (one_chunk, Timeouts(connect_s=5, first_byte_s=9, between_chunks_s=0.3, whole_s=9), "between_chunks"),
        (dripping, Timeouts(connect_s=5, first_byte_s=9, between_chunks_s=9, whole_s=0.5), "whole"),
        (one_chunk, Timeouts(connect_s=5, first_byte_s=9, between_chunks_s=9, whole_s=0.5), "whole"),
        (never, Timeouts(connect_s=5, first_byte_s=9, between_chunks_s=9, whole_s=0.5), "whole"),
    ],
)
async def test_a_hang_is_a_timeout_of_its_phase_and_closes_the_connection(script: Script, timeouts: Timeouts, phase: str) -> None:
    ended = asyncio.Event()

    async def watched(wire: Wire) -> None:
        try:
            await script(wire)
        finally:
            ended.set()

    async with facing(watched, timeouts) as (upstream, _):
        started = asyncio.get_running_loop().time()
        assert await failure_of(upstream) == ("timeout", phase)
        assert asyncio.get_running_loop().time() - started < 5
        async with asyncio.timeout(2):
            await ended.wait()


async def test_a_reader_that_is_slow_is_not_the_engines_silence() -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD + chunk(b"1"))
        await asyncio.sleep(0.1)
        await wire.send(chunk(b"2") + b"0\r\n\r\n")

    async with facing(script, Timeouts(connect_s=5, first_byte_s=9, between_chunks_s=0.3, whole_s=9)) as (upstream, _):
        got = b""
        async with upstream.send("/v1/x", b"{}") as answer:
            async for data in answer.chunks():
                got += data
                await asyncio.sleep(0.7)
        assert got == b"12"


@pytest.mark.parametrize("leave", ["break", "error", "cancel", "before the head"])
async def test_leaving_early_closes_the_connection_at_once(leave: str) -> None:
    closed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    begun = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.request()
        if leave != "before the head":
            await wire.send(HEAD + chunk(b"data: 1\n\n"))
        begun.set()
        closed.set_result(await wire.closed_by_client())

    async def call(upstream: Upstream) -> None:
        async with upstream.send("/v1/x", b"{}") as answer:
            async for _ in answer.chunks():
                if leave == "break":
                    break
                if leave == "error":
                    raise KeyError

    async with facing(script) as (upstream, _):
        task = asyncio.create_task(call(upstream))
        await begun.wait()
        if leave in ("cancel", "before the head"):
            await asyncio.sleep(0.05)
            task.cancel()
        started = asyncio.get_running_loop().time()
        assert await closed
        assert asyncio.get_running_loop().time() - started < 0.5
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() == (leave in ("cancel", "before the head"))


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async def script(wire: Wire) -> None:
        while await wire.request():
            await wire.send(whole(b"", "307 Temporary Redirect", b"Location: /elsewhere\r\n"))

    async with facing(script) as (upstream, engine), upstream.send("/v1/x", b"{}") as answer:
        assert answer.status == 307
        assert await answer.read() == b""
        assert engine.connections == 1


async def test_a_compressed_answer_and_cookies_are_left_as_they_are() -> None:
    seen: list[bytes] = []

    async def script(wire: Wire) -> None:
        while request := await wire.request():
            seen.append(request)
            await wire.send(whole(b"\x1f\x8b\x08rest", headers=b"Content-Encoding: gzip\r\nSet-Cookie: a=b\r\n"))

    async with facing(script) as (upstream, _):
        for _ in range(2):
            async with upstream.send("/v1/x", b"{}") as answer:
                assert answer.content_encoding == "gzip"
                assert await answer.read() == b"\x1f\x8b\x08rest"
    assert not any(b"cookie" in request.lower() for request in seen)


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(whole(b"{}"))

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with facing(script) as (upstream, _):
        assert await body_of(upstream) == b"{}"


async def test_an_https_engine_is_reached_with_its_authority_and_without_it_is_unreachable(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    other = trustme.CA()
    other.cert_pem.write_to_path(str(tmp_path / "other.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def script(wire: Wire) -> None:
        while await wire.request():
            await wire.send(whole(b"{}"))

    async with scripted(script, context) as engine:
        async with reaching(engine.address, ca_file=str(tmp_path / "ca.pem")) as upstream:
            assert await body_of(upstream) == b"{}"
        for ca_file in (str(tmp_path / "other.pem"), None):
            async with reaching(engine.address, ca_file=ca_file) as upstream:
                assert await failure_of(upstream) == ("unreachable", "")


@pytest.mark.parametrize("address", ["ftp://x", "127.0.0.1:80", "http://", "http://h/?q=1", "http://user:pw@h"])
def test_an_address_that_can_not_be_used_is_told(address: str) -> None:
    with pytest.raises(ConfigurationError, match="address"):
        Upstream(name="x", address=address, engine=ENGINES["generic"])


def test_a_ca_file_that_is_not_there_is_told() -> None:
    with pytest.raises(ConfigurationError, match="ca_file"):
        Upstream(name="x", address="https://h", engine=ENGINES["generic"], ca_file="/nowhere/ca.pem")


async def test_a_path_prefix_of_the_address_is_kept() -> None:
    async def script(wire: Wire) -> None:
        request = await wire.request()
        await wire.send(whole(request.split(b" ")[1]))

    async with scripted(script) as engine, reaching(engine.address + "/llm/") as upstream:
        assert await body_of(upstream) == b"/llm/v1/chat/completions"


async def test_helper_requests_are_bounded_in_number_time_and_size() -> None:
    at_once = 0
    most = 0

    async def script(wire: Wire) -> None:
        nonlocal at_once, most
        while request := await wire.request():
            if b"/hang" in request:
                await wire.reader.read()
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0.05)
            at_once -= 1
            await wire.send(whole(b"no json" if b"/text" in request else b'{"n":1}'))

    async with facing(script, helper_calls=2, helper_s=2) as (upstream, _):
        assert await asyncio.gather(*(upstream.post_json("/count", {"x": 1}) for _ in range(8))) == [(200, {"n": 1})] * 8
        assert most == 2
        hanging = [asyncio.create_task(upstream.post_json("/hang", {})) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert await upstream.get_json("/health") == (200, {"n": 1}), "health waits for no turn"
        assert [type(failure) for failure in await asyncio.gather(*hanging, return_exceptions=True)] == [EngineFailure] * 2
        assert await upstream.get_json("/text") == (200, None)
        with pytest.raises(EngineFailure) as caught:
            await upstream.post_json("/hang", {})
        assert (caught.value.kind, caught.value.phase) == ("timeout", "helper")


async def test_an_answer_read_whole_is_bounded() -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD)
        while True:
            await wire.send(chunk(b"x" * 65_536))

    async with facing(script) as (upstream, _):
        with pytest.raises(EngineFailure, match="larger"):
            async with upstream.send("/v1/x", b"{}") as answer:
                await answer.read(1_000_000)


async def test_a_reset_of_an_idle_connection_is_nobodys_error(caplog: pytest.LogCaptureFixture) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(whole(b"{}"))
        await asyncio.sleep(0.05)
        wire.reset()

    async with facing(script) as (upstream, engine):
        await body_of(upstream)
        await asyncio.sleep(0.2)
        gc.collect()
        assert not caplog.records
        await body_of(upstream)
        assert engine.connections == 2
