"""An engine's health as the probe sees it, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping

import pytest

from gateway.engines import ENGINES
from gateway.upstream.forward import Upstream
from gateway.upstream.health import SILENCES, Health, HealthProbe, State
from tests.support.scripted_engine import Wire, scripted

LOADING = '{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}'


async def probed(answers: Mapping[str, tuple[int, str]], path: str | None = None) -> Health:
    async def script(wire: Wire) -> None:
        while request := await wire.request():
            status, body = answers.get(request.split(b" ")[1].decode(), (404, "{}"))
            await wire.send(f"HTTP/1.1 {status} X\r\nLocation: /x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    async with scripted(script) as engine:
        upstream = Upstream(name="x", address=engine.address, engine=ENGINES["llama.cpp"])
        health = await HealthProbe(upstream, lambda: 7, path=path).probe()
        await upstream.close()
        return health


async def test_an_engine_that_answers_is_healthy() -> None:
    assert await probed({"/health": (200, '{"status":"ok"}')}) == Health(state=State.HEALTHY, since_ms=7)


async def test_an_engine_that_loads_its_model_is_not_and_its_words_are_the_reason() -> None:
    health = await probed({"/health": (503, LOADING)})
    assert (health.state, health.usable) == (State.UNHEALTHY, False)
    assert "503" in health.reason and "Loading model" in health.reason


async def test_a_wrong_health_path_is_told_as_such_and_the_engine_is_not_taken_for_dead() -> None:
    health = await probed({"/v1/models": (200, '{"data":[]}')}, path="/healthz")
    assert (health.state, health.wrong_path, health.usable) == (State.HEALTHY, True, True)
    assert "/healthz" in health.reason and "health_path" in health.reason


async def test_a_server_that_knows_no_path_of_ours_is_no_engine() -> None:
    health = await probed({})
    assert (health.state, health.wrong_path) == (State.UNHEALTHY, True)


@pytest.mark.parametrize(("status", "state", "word"), [(401, State.HEALTHY, "credential"), (302, State.UNHEALTHY, "redirect"), (500, State.UNHEALTHY, "500")])
async def test_other_answers_are_told_apart(status: int, state: State, word: str) -> None:
    health = await probed({"/health": (status, "")})
    assert health.state is state
    assert word in health.reason


async def test_one_refused_connection_is_enough() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        upstream = Upstream(name="x", address=f"http://127.0.0.1:{free.getsockname()[1]}", engine=ENGINES["llama.cpp"])
        health = await HealthProbe(upstream, lambda: 7).probe()
        await upstream.close()
    assert (health.state, health.reason) == (State.UNHEALTHY, "refuses connections")


async def test_silence_must_come_three_times() -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.reader.read()

    async with scripted(script) as engine:
        upstream = Upstream(name="x", address=engine.address, engine=ENGINES["llama.cpp"], helper_s=0.1)
        probe = HealthProbe(upstream, lambda: 7)
        states = [(await probe.probe()).state for _ in range(SILENCES)]
        await upstream.close()
    assert states == [*[State.UNKNOWN] * (SILENCES - 1), State.UNHEALTHY]


async def test_the_loop_sees_an_engine_come_and_go_and_looks_at_once_when_told() -> None:
    seen: list[State] = []
    changed = asyncio.Event()
    up = False

    def note(health: Health) -> None:
        seen.append(health.state)
        changed.set()

    async def script(wire: Wire) -> None:
        while await wire.request():
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" if up else b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n")

    async with scripted(script) as engine:
        upstream = Upstream(name="x", address=engine.address, engine=ENGINES["llama.cpp"])
        probe = HealthProbe(upstream, lambda: 7, on_change=note, interval_s=60, interval_unhealthy_s=0.05)
        task = asyncio.create_task(probe.run())
        for expected in (State.UNHEALTHY, State.HEALTHY, State.UNHEALTHY):
            async with asyncio.timeout(5):
                await changed.wait()
            changed.clear()
            assert seen[-1] is expected
            up = expected is State.UNHEALTHY
            probe.look_soon()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await upstream.close()
