"""The one waiting place, as a caller sees it: `await gate.admit(...)` gives a slot and a durable reservation, or raises Refused.

Rule: everything is decided in `turns`, synchronously; here is only what must be awaited: the commit, the count, and a client that leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from gateway.accounting.balances import Balances
from gateway.accounting.commands import Command, Reserve, Void
from gateway.accounting.entries import Posting
from gateway.errors import ClockUncertain, CommandRejected, EngineFailure, LedgerUnavailable
from gateway.upstream.alarms import Timers
from gateway.upstream.call import Admission, Refusal, Refused, Ticket
from gateway.upstream.effects import Counts
from gateway.upstream.queue import GateSettings
from gateway.upstream.turns import Turns
from gateway.upstream.waiter import Cause, Waiter, WaitingView

Post = Callable[[Command], "asyncio.Future[Posting]"]
ReserveOf = Callable[[Admission], Reserve]


@dataclass(slots=True, eq=False, kw_only=True)
class _Call:
    """One `admit` under way."""

    ticket: Ticket
    reserve: ReserveOf
    answer: asyncio.Future[Admission]
    admission: Admission | None = None
    """Set when slot and room are taken; durable when `answer` has it."""
    committed: bool = False
    failed: bool = False
    left: bool = False
    counter: asyncio.Task[None] | None = None


class Gate:
    """Call it in the event loop's thread only. `timers` and `now_ms` are the loop's and the ledger's, or a simulated world's."""

    def __init__(
        self,
        balances: Balances,
        post: Post,
        now_ms: Callable[[], int],
        slots: Mapping[str, int],
        settings: GateSettings | None = None,
        timers: Timers | None = None,
    ) -> None:
        self._post = post
        self._now_ms = now_ms
        self._calls: dict[Ticket, _Call] = {}
        self._writing: set[asyncio.Future[Posting]] = set()
        self._turns = Turns(balances, now_ms, timers or asyncio.get_running_loop(), slots, settings or GateSettings(), self)

    async def admit(self, ticket: Ticket, reserve: ReserveOf) -> Admission:
        """Wait for a slot and room on all limits. The caller owes `free(admission.upstream)` when the call is over.

        Raises Refused. Cancelled while it waits: nothing happened. Cancelled later: the reservation is voided and the slot given back.
        """
        call = _Call(ticket=ticket, reserve=reserve, answer=asyncio.get_running_loop().create_future())
        self._calls[ticket] = call
        waiter = self._turns.arrive(ticket)
        try:
            return await call.answer
        except asyncio.CancelledError:
            self._left(call, waiter)
            raise
        finally:
            del self._calls[ticket]
            if call.counter is not None:
                call.counter.cancel()

    def free(self, upstream: str) -> None:
        """An admitted call is over: its slot is given back."""
        self._turns.free(upstream)

    def wake(self) -> None:
        """Room may have come free: a settlement, void, expiry or correction was committed. One pass a loop tick."""
        self._turns.wake()

    def set_slots(self, upstream: str, slots: int) -> None:
        self._turns.set_slots(upstream, slots)

    def left_home(self, campaign: str, run: str, lane: str, engines: tuple[str, ...]) -> None:
        """A call of that flow failed at its engine: the next need not go there."""
        self._turns.queue.homes.left((campaign, run, lane, engines))

    def halted_changed(self, campaign: str) -> None:
        """The tickets' own `halted` says what is true now."""
        self._turns.halted_changed(campaign)

    def recheck(self, campaign: str | None = None, run: str | None = None) -> None:
        """A campaign, run or key was closed or revoked: waiters whose `check` refuses them now are answered."""
        self._turns.recheck(campaign, run)

    def shutdown(self) -> None:
        """Every waiter, and every later call, is refused as `shutting_down`."""
        self._turns.shutdown()

    async def settled(self) -> None:
        """Until no reservation or void of this gate is being written."""
        while self._writing:
            await asyncio.wait(self._writing)
            await asyncio.sleep(0)  # a void may follow

    def waiting(self) -> list[WaitingView]:
        return self._turns.queue.views()

    @property
    def counts(self) -> Counts:
        return self._turns.counts

    def busy(self, upstream: str) -> int:
        """Slots taken."""
        return self._turns.busy(upstream)

    # What the logic asks for (effects.Effects).

    def commit(self, ticket: Ticket, admission: Admission) -> None:
        call = self._calls[ticket]
        call.admission = admission
        try:
            posted = self._post(call.reserve(admission))
        except Exception as error:
            self._failed(call, error)
            return
        self._writing.add(posted)
        posted.add_done_callback(partial(self._written, call))

    def count(self, waiter: Waiter) -> None:
        call = self._calls[waiter.ticket]
        call.counter = asyncio.get_running_loop().create_task(self._count(call, waiter))

    def refuse(self, ticket: Ticket, refusal: Refusal) -> None:
        _fail(self._calls[ticket].answer, Refused(refusal))

    # What must be awaited.

    async def _count(self, call: _Call, waiter: Waiter) -> None:
        try:
            if call.ticket.count is None:
                raise TypeError("a demand says that it can be counted, its ticket cannot")
            tokens = await call.ticket.count()
            self._turns.counted(waiter, tokens)
        except Refused as refused:
            if waiter.queued:
                self._turns.refuse(waiter, refused.refusal)
        except EngineFailure:
            if waiter.queued:
                self._turns.refuse(waiter, Refusal(code="engine_unavailable", final=False))
        except Exception as error:
            self._turns.leave(waiter)
            _fail(call.answer, error)

    def _written(self, call: _Call, posted: asyncio.Future[Posting]) -> None:
        self._writing.discard(posted)
        error = LedgerUnavailable("the ledger was closed") if posted.cancelled() else posted.exception()
        if error is not None:
            self._failed(call, error)
            return
        call.committed = True
        if call.left:
            self._void(call)
        elif not call.answer.done():
            assert call.admission is not None
            call.answer.set_result(call.admission)

    def _failed(self, call: _Call, error: BaseException) -> None:
        """The ledger gave back what it had reserved."""
        call.failed = True
        if call.left:
            self._turns.wake(Cause.FAILED)
        else:
            assert call.admission is not None
            self._turns.commit_failed(call.admission.upstream)
        refusal = self._refusal_for(call.ticket, error)
        _fail(call.answer, error if refusal is None else Refused(refusal))

    def _refusal_for(self, ticket: Ticket, error: BaseException) -> Refusal | None:
        match error:
            case LedgerUnavailable():
                return Refusal(code="ledger_unavailable", final=False)
            case ClockUncertain():
                return Refusal(code="clock", final=False)
            case CommandRejected():
                return ticket.check(self._now_ms())
            case _:
                return None

    def _left(self, call: _Call, waiter: Waiter) -> None:
        """The client left, or the caller was cancelled."""
        if call.answer.done() and not call.answer.cancelled():
            call.answer.exception()  # seen, should it be a refusal that nobody hears
        if call.admission is None:
            self._turns.leave(waiter)
        elif not call.failed:
            call.left = True
            self._turns.free(call.admission.upstream, Cause.LEFT)
            if call.committed:
                self._void(call)

    def _void(self, call: _Call) -> None:
        try:
            posted = self._post(Void(call_id=call.ticket.call_id, at_ms=self._now_ms(), reason="the client left before anything was sent"))
        except LedgerUnavailable:
            return  # closed as lost when the ledger opens again
        self._writing.add(posted)
        posted.add_done_callback(self._voided)

    def _voided(self, posted: asyncio.Future[Posting]) -> None:
        self._writing.discard(posted)
        if not posted.cancelled():
            posted.exception()  # seen; the ledger reports its own failures
        self._turns.wake(Cause.RELEASED)


def _fail(answer: asyncio.Future[Admission], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
