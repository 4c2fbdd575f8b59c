"""Snapshots for whoever looks at the page: made at most once a second, one for all of them, and none while nobody looks.

The rule: no call waits for it longer than for another call's step. Who reads no more is let go, and only so many look at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import orjson
from aiohttp import web

from gateway.control.overview import View, live_run, overview
from gateway.control.problems import Problem
from gateway.control.services import SERVICES
from gateway.errors import GatewayError
from gateway.logs import log

EVERY_S: Final = 1.0
LOOKING_MAX: Final = 16
"""Streams of one listener at once."""
WRITE_S: Final = 10.0
"""How long who looks may not read before it is let go."""
KEPT_MAX: Final = 2 * LOOKING_MAX


class Looking:
    """Of one application."""

    def __init__(self) -> None:
        self.streams = 0
        self._closing = asyncio.Event()
        self._made: dict[str, tuple[float, bytes]] = {}
        self._making: dict[str, asyncio.Lock] = {}

    async def close(self, _app: web.Application) -> None:
        """Every stream ends in good order."""
        self._closing.set()

    async def pause(self) -> bool:
        """Until the next snapshot is due; whether there is to be one."""
        try:
            await asyncio.wait_for(self._closing.wait(), EVERY_S)
        except TimeoutError:
            return True
        return False

    @contextmanager
    def stream(self) -> Iterator[None]:
        if self.streams >= LOOKING_MAX:
            cause = f"{LOOKING_MAX} are open on this listener, which is all there may be."
            raise Problem(503, "too_many_looking", "There is no stream for one more.", cause, "Ask for /v1/overview every few seconds, or close a page.")
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    async def snapshot(self, of: str, make: Callable[[], Awaitable[View]]) -> bytes:
        """As JSON; the one that was made less than a second ago, where there is one."""
        async with self._making.setdefault(of, asyncio.Lock()):
            at, made = self._made.get(of, (0.0, b""))
            if not made or time.monotonic() - at >= EVERY_S:
                made = orjson.dumps(await make(), default=dict)
                if len(self._made) >= KEPT_MAX:
                    self._made.clear()
                self._made[of] = time.monotonic(), made
        if len(self._making) > KEPT_MAX:
            self._making = {name: lock for name, lock in self._making.items() if lock.locked()}
        return made


LOOKING: web.AppKey[Looking] = web.AppKey("looking", Looking)


async def show_overview(request: web.Request) -> web.Response:
    return web.json_response(body=await _snapshot(request))


async def events(request: web.Request) -> web.StreamResponse:
    """Server-sent events, each a snapshot: of everything, or of one run. The first comes at once."""
    looking = request.app[LOOKING]
    with looking.stream():
        first = await _snapshot(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        try:
            await response.prepare(request)
            await _write(response, first)
            while await looking.pause():
                await _write(response, await _snapshot(request))
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()
        except GatewayError as error:  # who looks asks again, and is told then
            log.warning("a stream of snapshots ended", extra={"fields": {"error": str(error)}})
    return response


async def _snapshot(request: web.Request) -> bytes:
    services = request.app[SERVICES]
    campaign, run = request.query.get("campaign", ""), request.query.get("run", "")
    if bool(campaign) != bool(run):
        raise Problem(400, "invalid", "A run is named by two words.", "One of campaign and run is missing.", "Say both, or none for an overview.")

    async def make() -> View:
        return live_run(services, campaign, run) if run else await overview(services)

    return await request.app[LOOKING].snapshot(f"{campaign}/{run}" if run else "", make)


async def _write(response: web.StreamResponse, snapshot: bytes) -> None:
    async with asyncio.timeout(WRITE_S):
        await response.write(b"data: " + snapshot + b"\n\n")
