"""Whether an engine has stopped working on a call that was left: it is asked once, a while later, and what it says stands on record where it is no yes.

One look serves all calls that were left at that engine meanwhile, and two looks keep their distance: an engine that is asked again and again may not get to
cancel anything. Nothing waits for a look; the settlement is long written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from gateway.accounting.commands import Command, Event
from gateway.accounting.entries import Posting
from gateway.errors import EngineFailure
from gateway.logs import log
from gateway.upstream.at_work import Found, Open, found_of, read_work
from gateway.upstream.forward import Upstream

LOOK_AFTER_S: Final = 3.0
"""From the end of a call's connection to the look, and from one look to the next: at most twice that."""
GATHERED: Final = 0.1
"""Of that time a call may be looked at too early, so that those left together are one look."""
LOOK_S: Final = 5.0
"""Longest that a look may take."""
ANSWER_BYTES: Final = 4 * 1024 * 1024
LEFT_MAX: Final = 1_000
"""Calls of one engine that wait for a look; a further one is not asked about, and that stands on record."""
RESULTS: Final = {Found.STOPPED: "confirmed", Found.AT_WORK: "unconfirmed"}
"""All else is unknown."""
Answered = tuple[int, bytes] | None
"""Status and body; None where there was no answer."""


class OpenCall(Protocol):
    """A call whose answer is awaited, as it is at the moment of asking."""

    def open(self) -> Open: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A call whose connection to its engine was closed before the end of its answer."""

    call_id: str
    campaign: str
    run: str
    ceiling: int
    pieces: int


class Cancelling:
    """Of all engines. In the loop's thread."""

    def __init__(
        self,
        post: Callable[[Command], asyncio.Future[Posting]],
        now_ms: Callable[[], int],
        on_result: Callable[[str, str], None] = lambda _upstream, _result: None,
        *,
        look_after_s: float = LOOK_AFTER_S,
    ) -> None:
        """`on_result` hears of each call: its engine, and `confirmed`, `unconfirmed` or `unknown`."""
        self._post = post
        self._now_ms = now_ms
        self._on_result = on_result
        self._look_after_s = look_after_s
        self._open: dict[str, set[OpenCall]] = {}
        self._left: dict[str, list[tuple[float, Left]]] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._known: dict[str, frozenset[int]] = {}
        """Pieces of work that an earlier look found to be nobody's: no later call is blamed for them."""
        self._writing: set[asyncio.Future[Posting]] = set()
        self._stopped = False

    def opened(self, upstream: str, call: OpenCall) -> None:
        """It is being sent."""
        self._open.setdefault(upstream, set()).add(call)

    def closed(self, upstream: str, call: OpenCall) -> None:
        """Its connection is closed or free for another."""
        self._open[upstream].discard(call)

    def left(self, upstream: Upstream, call: Left) -> None:
        """To be confirmed, later."""
        waiting = self._left.setdefault(upstream.name, [])
        if self._stopped or len(waiting) >= LEFT_MAX:
            self._say(upstream.name, call, Found.NOT_ASKED)
        elif not upstream.engine.work_path:
            self._say(upstream.name, call, Found.CANNOT_BE_ASKED)
        else:
            loop = asyncio.get_running_loop()
            waiting.append((loop.time() + self._look_after_s, call))
            if upstream.name not in self._watches:
                self._watches[upstream.name] = loop.create_task(self._watch(upstream))

    async def stop(self) -> None:
        """No look is awaited: what was not asked stands on record as that. Returns when it does."""
        self._stopped = True
        watches = tuple(self._watches.values())
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        for name, waiting in self._left.items():
            for _, call in waiting:
                self._say(name, call, Found.NOT_ASKED)
            waiting.clear()
        if self._writing:
            await asyncio.wait(tuple(self._writing))

    async def _watch(self, upstream: Upstream) -> None:
        loop = asyncio.get_running_loop()
        waiting = self._left[upstream.name]
        try:
            while waiting:
                await asyncio.sleep(waiting[0][0] - loop.time())
                now, before = loop.time(), self._opened(upstream.name)
                due = [call for at, call in waiting if at <= now + self._look_after_s * GATHERED]
                answer = await _ask(upstream)
                del waiting[: len(due)]
                opened = _at_both(before, self._opened(upstream.name))
                for call, found in self._found(upstream, due, opened, answer):
                    self._say(upstream.name, call, found)
                await asyncio.sleep(self._look_after_s)
        finally:
            del self._watches[upstream.name]

    def _opened(self, name: str) -> dict[OpenCall, Open]:
        return {call: call.open() for call in self._open.get(name, ())}

    def _found(self, upstream: Upstream, due: Iterable[Left], opened: Collection[Open], answer: Answered) -> Iterator[tuple[Left, Found]]:
        work = read_work(upstream.engine, answer[1]) if answer is not None and answer[0] == 200 else None
        if work is None:
            silent = answer is None or (answer[0] >= 500 and answer[0] != 501)
            yield from ((call, Found.NO_ANSWER if silent else Found.CANNOT_BE_ASKED) for call in due)
            return
        known = self._known.get(upstream.name, frozenset())
        nobodys = {one.number for one in work} & known
        fresh = [one for one in work if one.number is None or one.number not in known]
        told_apart = all(one.ceiling is not None for one in fresh)
        alike: dict[int, list[Left]] = {}
        for call in due:
            alike.setdefault(call.ceiling if told_apart else 0, []).append(call)
        for ceiling, calls in alike.items():
            found = found_of(ceiling, sum(call.pieces for call in calls), fresh, opened)
            if found is Found.AT_WORK and not any(one.ceiling == ceiling for one in opened):
                nobodys |= {one.number for one in fresh if one.ceiling == ceiling}
            told = Found.MAY_LAG if found is Found.AT_WORK and upstream.engine.work_lags else found
            yield from ((call, told) for call in calls)
        self._known[upstream.name] = frozenset(number for number in nobodys if number is not None)

    def _say(self, upstream: str, call: Left, found: Found) -> None:
        self._on_result(upstream, RESULTS.get(found, "unknown"))
        if found is Found.STOPPED:
            return
        log.warning("an engine's work was not seen to stop", extra={"fields": {"call": call.call_id, "upstream": upstream, "found": str(found)}})
        details = {"upstream": upstream, "found": str(found)}
        event = Event(campaign=call.campaign, run=call.run, call_id=call.call_id, name="cancel_unconfirmed", at_ms=self._now_ms(), details=details)
        written = self._post(event)
        self._writing.add(written)
        written.add_done_callback(self._written)

    def _written(self, written: asyncio.Future[Posting]) -> None:
        self._writing.discard(written)
        error = None if written.cancelled() else written.exception()
        if error is not None:
            log.error("an event could not be written", extra={"fields": {"name": "cancel_unconfirmed", "error": str(error)}})


def _at_both(before: Mapping[OpenCall, Open], after: Mapping[OpenCall, Open]) -> list[Open]:
    """Every call that may have been at work when the engine looked; as surely at work only those that were so before the question and are still open."""
    return [replace(one, begun=call in before and call in after and before[call].begun) for call, one in {**before, **after}.items()]


async def _ask(upstream: Upstream) -> Answered:
    try:
        async with asyncio.timeout(LOOK_S), upstream.send(upstream.engine.work_path, b"", method="GET") as answer:
            return answer.status, await answer.read(ANSWER_BYTES)
    except (EngineFailure, TimeoutError):
        return None
