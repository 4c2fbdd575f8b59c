"""What a call held is let go when it ends: its body waits for no collector, which comes by seldom and would find hundreds of them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import aiohttp

from gateway.app import Gateway
from gateway.client.control import ControlClient
from gateway.proxy.calls import Call
from gateway.proxy.reservation import Reservation
from gateway.services import Services
from gateway.settings import load_settings
from gateway.upstream.answer import Answer
from tests.support.scripted_engine import Wire, scripted
from tests.support.waiting import eventually_async

POLICY = 'schema = 1\napis = ["openai.chat"]\n\n[models.m]\ncounter = "bytes"\ncontext_tokens = 100_000\noverhead_tokens = 10\n\n[campaign]\nrequests = 1_000\n'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":%s}]}\n\n'
ENDED = b'data: {"id":"x","model":"m","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}\n\ndata: [DONE]\n\n'


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def engine(wire: Wire) -> None:
    """What is asked for the endless gets it."""
    while request := await wire.request():
        if request.startswith(b"GET"):
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            continue
        await wire.send(HEAD + chunk(EVENT % b"null"))
        await asyncio.sleep(0.01)
        if b'"endless"' in request:
            await wire.closed_by_client(10)
            return
        await wire.send(chunk(EVENT % b'"stop"') + chunk(ENDED) + b"0\r\n\r\n")


@asynccontextmanager
async def serving(folder: Path, engine_address: str) -> AsyncIterator[tuple[Gateway, str]]:
    (folder / "policies").mkdir()
    (folder / "policies" / "p.toml").write_text(POLICY)
    config = folder / "gateway.toml"
    config.write_text(
        f'policies = "{folder}/policies"\n[data]\nlisten = "127.0.0.1:0"\n[control]\nsocket = "{folder}/s"\n[ledger]\npath = "{folder}/l"\n'
        f'[upstreams.e]\naddress = "{engine_address}"\nengine = "generic"\nslots = 8\n[upstreams.e.models]\nm = "m"\n'
    )
    gateway = Gateway(load_settings(config))
    await gateway.start()
    try:
        yield gateway, await asyncio.to_thread(key, folder / "s")
    finally:
        await gateway.stop(1)


def key(socket: Path) -> str:
    control = ControlClient(socket)
    control.open_campaign("c", "p")
    return str(control.open_run("c", "r")["keys"]["foreground"])


async def test_a_call_leaves_nothing_behind_whether_it_ended_or_its_agent_left(tmp_path: Path) -> None:
    async with scripted(engine) as scripts, serving(tmp_path, scripts.address) as (gateway, secret), aiohttp.ClientSession() as session:
        url, headers = gateway.data.address + "/v1/chat/completions", {"Authorization": f"Bearer {secret}"}
        gc.collect()
        gc.disable()
        try:
            for number in range(6):
                asked = "endless" if number % 2 else "short"
                body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": asked}]}
                async with session.post(url, json=body, headers=headers) as answer:
                    assert answer.status == 200
                    await answer.content.readany()
                    if asked == "short":
                        assert b"[DONE]" in await answer.read()
            await eventually_async(lambda: not len(gateway.runs.in_flight), "every call is settled")
            await asyncio.sleep(0.1)
            held = [one for one in gc.get_objects() if isinstance(one, Call | Reservation | Answer)]
        finally:
            gc.enable()
    assert held == []


async def test_while_its_answer_comes_a_call_does_not_hold_its_body(tmp_path: Path) -> None:
    marked = "A text that stands nowhere else. " * 400
    async with scripted(engine) as scripts, serving(tmp_path, scripts.address) as (gateway, secret), aiohttp.ClientSession() as session:
        url, headers = gateway.data.address + "/v1/chat/completions", {"Authorization": f"Bearer {secret}"}
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": marked}, {"role": "user", "content": "endless"}]}
        async with session.post(url, json=body, headers=headers) as answer:
            await answer.content.readany()
            (call,) = [one for one in gc.get_objects() if isinstance(one, Call)]
            await eventually_async(lambda: all(len(text) < len(marked) for text in texts_held_by(call)), "its body is let go")


def texts_held_by(call: Call) -> list[bytes | str]:
    """And by the reservation that holds the call."""
    left: list[object] = [call, *(one for one in gc.get_objects() if isinstance(one, Reservation))]
    seen: set[int] = set()
    found: list[bytes | str] = []
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | Gateway | Services | asyncio.AbstractEventLoop) or _is_module(one):
            continue
        seen.add(id(one))
        if isinstance(one, bytes | str):
            found.append(one)
        left += gc.get_referents(one)
    return found


def _is_module(one: object) -> bool:
    """The names of one, as its functions hold them: by way of these everything holds everything."""
    return isinstance(one, dict) and "__builtins__" in one
