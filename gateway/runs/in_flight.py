"""Who is in flight: every call from before it may wait until its settlement is durable, so that what cuts or waits for calls can find them.

A call is entered before its reservation is posted and ends once, after it was settled or refused: a run with nothing in flight has nothing reserved.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from types import TracebackType

from gateway.accounting.limit import Shortfall
from gateway.accounting.usage import Outcome

OnCut = Callable[[Outcome], None]
_Run = tuple[str, str]

_log = logging.getLogger(__name__)


class Handle:
    """One call in flight. Used as a context manager, it ends with its block."""

    __slots__ = ("_callbacks", "_ended", "_in_flight", "call_id", "campaign", "cut", "cut_by", "key_id", "run")

    def __init__(self, in_flight: InFlight, call_id: str, campaign: str, run: str, key_id: str) -> None:
        self.call_id = call_id
        self.campaign = campaign
        self.run = run
        self.key_id = key_id
        self.cut: Outcome | None = None
        """Why it was cut; the first reason stays."""
        self.cut_by: Shortfall | None = None
        """The limit that cut it, where it was one, with its numbers at that moment."""
        self._callbacks: list[OnCut] = []
        self._in_flight = in_flight
        self._ended = False

    def on_cut(self, callback: OnCut) -> None:
        """Call `callback` when the call is cut; at once where it already is. It must be quick and may not wait."""
        if self.cut is None:
            self._callbacks.append(callback)
        else:
            callback(self.cut)

    def end(self) -> None:
        """The call is settled or refused. A second end does nothing."""
        if not self._ended:
            self._ended = True
            self._callbacks.clear()
            self._in_flight._remove(self)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def _cut(self, outcome: Outcome, by: Shortfall | None = None) -> None:
        if self.cut is not None or self._ended:
            return
        self.cut, self.cut_by = outcome, by
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback(outcome)
            except Exception:  # one call's fault may not keep the others running
                _log.exception("cutting call %s", self.call_id)


class InFlight:
    """All calls in flight, by run."""

    def __init__(self) -> None:
        self._runs: dict[_Run, set[Handle]] = {}
        self._entered: dict[_Run, int] = {}
        self._waiters: dict[_Run | None, list[asyncio.Future[None]]] = {}
        self._count = 0

    def enter(self, call_id: str, campaign: str, run: str, key_id: str) -> Handle:
        handle, key = Handle(self, call_id, campaign, run, key_id), (campaign, run)
        calls = self._runs.get(key)
        if calls is None:
            calls = self._runs[key] = set()
        calls.add(handle)
        self._entered[key] = self._entered.get(key, 0) + 1
        self._count += 1
        return handle

    def entered(self, campaign: str, run: str) -> int:
        """Calls that this run ever entered in this process, those that were refused included."""
        return self._entered.get((campaign, run), 0)

    def cut_run(self, campaign: str, run: str, outcome: Outcome) -> int:
        return _cut(self._runs.get((campaign, run), ()), outcome)

    def cut_campaign(self, campaign: str, outcome: Outcome) -> int:
        return sum(_cut(calls, outcome) for (name, _), calls in tuple(self._runs.items()) if name == campaign)

    def cut_key(self, campaign: str, run: str, key_id: str, outcome: Outcome, by: Shortfall | None = None) -> int:
        return _cut((call for call in self._runs.get((campaign, run), ()) if call.key_id == key_id), outcome, by)

    def cut_everything(self, outcome: Outcome) -> int:
        return sum(_cut(calls, outcome) for calls in tuple(self._runs.values()))

    async def drained_run(self, campaign: str, run: str) -> None:
        """Wait until nothing of this run is in flight."""
        while (campaign, run) in self._runs:
            await self._wait((campaign, run))

    async def drained(self) -> None:
        """Wait until nothing is in flight at all."""
        while self._count:
            await self._wait(None)

    def __len__(self) -> int:
        return self._count

    def count(self, campaign: str, run: str) -> int:
        return len(self._runs.get((campaign, run), ()))

    def runs(self) -> tuple[_Run, ...]:
        """Campaign and run of all that have calls in flight."""
        return tuple(self._runs)

    def keys(self, campaign: str, run: str) -> set[str]:
        """Of this run's calls that nothing has cut yet."""
        return {call.key_id for call in self._runs.get((campaign, run), ()) if call.cut is None}

    def calls(self) -> tuple[Handle, ...]:
        return tuple(handle for calls in self._runs.values() for handle in calls)

    async def _wait(self, which: _Run | None) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(which, [])
        waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter.cancelled():
                waiters.remove(waiter)
                if not waiters and self._waiters.get(which) is waiters:
                    del self._waiters[which]

    def _remove(self, handle: Handle) -> None:
        key = (handle.campaign, handle.run)
        calls = self._runs[key]
        calls.remove(handle)
        self._count -= 1
        if not calls:
            del self._runs[key]
            self._release(key)
        if not self._count:
            self._release(None)

    def _release(self, which: _Run | None) -> None:
        for waiter in self._waiters.pop(which, ()):
            if not waiter.done():
                waiter.set_result(None)


def _cut(calls: Iterable[Handle], outcome: Outcome, by: Shortfall | None = None) -> int:
    """Cut each; how many there were. A callback may end its call at once, so the list is taken first."""
    standing = tuple(calls)
    for call in standing:
        call._cut(outcome, by)
    return len(standing)
