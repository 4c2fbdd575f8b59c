"""What a handler can reach: everything that `app.py` built, in one frozen value."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from gateway.capture.keeper import Keeper
from gateway.capture.store import BodyStore, bodies_folder
from gateway.ledger.ledger import Ledger
from gateway.metrics.metrics import Metrics
from gateway.policy.remembered import Remembered
from gateway.runs.growth import Growth
from gateway.runs.runs import Runs
from gateway.settings.settings import Settings
from gateway.upstream.cancelling import Cancelling
from gateway.upstream.engines import Engines
from gateway.upstream.event_sizes import EventSizes
from gateway.upstream.gate import Gate


@dataclass(slots=True)
class Stopping:
    """Set once, when the process was told to stop: from then on new calls are refused as `shutting_down`."""

    begun: bool = False


class Background:
    """Work that goes on though the request that began it is over. Tasks are held here, so that none is lost."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()
        self._cancelled = False

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)
        if self._cancelled:
            loop.call_soon(task.cancel)  # once it has begun: a task that is cancelled before runs nothing at all, not even its end
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def hold(self, work: asyncio.Future[Any]) -> None:
        """Something under way that needs no task of ours."""
        self._tasks.add(work)
        work.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Ends what waits for engines, also what is spawned from now on; what writes is shielded and goes on."""
        self._cancelled = True
        for task in tuple(self._tasks):
            task.cancel()

    async def finished(self, seconds: float) -> bool:
        """Wait for all of it, at most so long."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=seconds)
        return not self._tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    settings: Settings
    ledger: Ledger
    gate: Gate
    runs: Runs
    engines: Engines
    metrics: Metrics
    growth: Growth = field(default_factory=Growth)
    background: Background = field(default_factory=Background)
    """Settlements and their repetition: never cancelled."""
    drains: Background = field(default_factory=Background)
    """Answers that are read to their end for nobody: cancelled when the process stops."""
    stopping: Stopping = field(default_factory=Stopping)
    cache_secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """What salts of prompt caches are made with."""
    keeper: Keeper = field(init=False)
    """Bodies, where a policy asks for them."""
    event_sizes: EventSizes = field(default_factory=EventSizes)
    remembered: Remembered = field(init=False)
    cancelling: Cancelling = field(init=False)

    def __post_init__(self) -> None:
        counted = self.metrics.cancellations.labels
        object.__setattr__(self, "cancelling", Cancelling(self.ledger.post, self.ledger.now_ms, lambda upstream, result: counted(upstream, result).inc()))
        captured, folder, one_at_a_time = self.metrics.captured.labels, bodies_folder(self.settings.ledger.path), threading.Lock()

        def kept(result: str) -> None:
            with one_at_a_time:  # some on the writing thread
                captured(result).inc()

        keeper = Keeper(BodyStore(folder), self.settings.capture.max_bytes, kept)
        object.__setattr__(self, "keeper", keeper)
        object.__setattr__(self, "remembered", Remembered(self.settings.limits))
