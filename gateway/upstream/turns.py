"""The one waiting place, as logic: who goes, who hears no, for whom room is set aside. No I/O, no sleep: clock, timers and effects are handed in.

Rule: a call leaves by taking a slot and room on all its limits in one step, and the reservation stands on the balances before the next is decided.
Every end of a wait, every release and every dropped aside is followed by a pass.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import assert_never

from gateway.accounting.balances import Balances
from gateway.accounting.decision import Count, Decision, Final, Patience, Send, Wait, decide, spent, unhindered
from gateway.accounting.limit import Limits
from gateway.upstream.alarms import Timers
from gateway.upstream.call import Refusal, Ticket
from gateway.upstream.counting import Counting
from gateway.upstream.effects import UNAVAILABLE, Counts, Effects, admission_of, budget_reached, in_vain
from gateway.upstream.queue import GateSettings, Queue
from gateway.upstream.slots import Slots
from gateway.upstream.waiter import Cause, Waiter


class Turns:
    def __init__(self, balances: Balances, now_ms: Callable[[], int], timers: Timers, slots: Mapping[str, int], rules: GateSettings, effects: Effects) -> None:
        self._balances = balances
        self._now_ms = now_ms
        self._timers = timers
        self._effects = effects
        self._queue_length = rules.queue_length
        self._slots = Slots(slots)
        self._counting = Counting()
        self._sequence = 0
        self._woken = False
        """A pass is due in the next loop tick."""
        self._passing = self._again = False
        self._shut = False
        self.queue = Queue(balances, self._slots, now_ms, timers, self._wait_changed, self._midnight, rules.affinity_wait_ms)
        self.counts = Counts()

    def arrive(self, ticket: Ticket) -> Waiter:
        """All that can be said at once is said before this returns."""
        now = self._now_ms()
        self._sequence += 1
        waiter = Waiter(ticket=ticket, sequence=self._sequence, arrived_ms=now, demand=ticket.demand(ticket.bound_tokens, ticket.bound_exact))
        refusal = Refusal(code="shutting_down", final=False) if self._shut else ticket.check(now)
        if refusal is None:
            waiter.limits = Limits.of(ticket.resolve(now))
            refusal = self._hopeless(waiter)
        if refusal is not None or self.queue.homes.out(waiter):
            self.refuse(waiter, refusal or UNAVAILABLE)
        elif len(self.queue) or not self._at_once(waiter, now):
            self._enqueue(waiter)
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """The client left while it waited: nothing happened."""
        if waiter.queued:
            self.counts.left += 1
            self._remove(waiter)
            self.wake(Cause.LEFT)

    def counted(self, waiter: Waiter, prompt_tokens: int) -> None:
        if not (waiter.queued and waiter.counting):
            return  # it left, or was told no, meanwhile
        self.counts.counted += 1
        self._count_ended(waiter)
        waiter.demand = waiter.ticket.demand(prompt_tokens, True)
        self.queue.places.note(waiter)
        self.queue.mark(waiter)
        refusal = self._hopeless(waiter)
        if refusal is not None:
            self.refuse(waiter, refusal, Cause.COUNTED)
        elif waiter.over:
            self._end(waiter)
        self.wake(Cause.COUNTED)

    def refuse(self, waiter: Waiter, refusal: Refusal, cause: Cause = Cause.REFUSED) -> None:
        """Tell it no. Where it waited that is a release, and a pass follows."""
        waited = waiter.queued
        if waited:
            self._remove(waiter)
        self.counts.refused(refusal.final)
        self._effects.refuse(waiter.ticket, replace(refusal, waited_ms=self._now_ms() - waiter.arrived_ms))
        if waited:
            self.wake(cause)

    def free(self, engine: str, cause: Cause = Cause.RELEASED) -> None:
        self._slots.free(engine)
        self.wake(cause)

    def commit_failed(self, engine: str) -> None:
        self.counts.commit_failed += 1
        self.free(engine, Cause.FAILED)

    def wake(self, cause: Cause = Cause.RELEASED) -> None:
        """A pass, once per loop tick however often it is asked for; asked for within one, another follows it."""
        if self._passing:
            self._again = True
        elif not self._woken and len(self.queue):
            self._woken = True
            self._timers.call_soon(self.run)

    def busy(self, engine: str) -> int:
        return self._slots.busy(engine)

    def set_slots(self, engine: str, number: int) -> None:
        """None at all: the engine is out, so whoever waits for it alone bars nobody meanwhile, and what it held of prompts is not counted on."""
        self._slots.set(engine, number)
        if number <= 0:
            self.queue.engine_is_out(engine)
        self.wake(Cause.SLOTS)

    def halted_changed(self, campaign: str) -> None:
        """May be told though nothing changed: then it costs next to nothing."""
        for waiter in self.queue:
            if waiter.ticket.campaign == campaign and waiter.halted != waiter.ticket.halted():
                waiter.halted = not waiter.halted
                self.queue.mark(waiter)
                if waiter.halted:
                    self.queue.places.drop_asides(waiter)
                self.wake(Cause.HALTED if waiter.halted else Cause.RESUMED)

    def recheck(self, campaign: str | None = None, run: str | None = None) -> None:
        """A run, campaign or key was closed or revoked: whoever must hear so hears it now."""
        now = self._now_ms()
        for waiter in self.queue:
            concerned = campaign in (None, waiter.ticket.campaign) and run in (None, waiter.ticket.run)
            if concerned and (refusal := waiter.ticket.check(now)) is not None and waiter.queued:
                self.refuse(waiter, refusal, Cause.CLOSED)

    def shutdown(self) -> None:
        """Every waiter, and whoever comes later, may try again elsewhere or after a restart."""
        self._shut = True
        for waiter in self.queue:
            if waiter.queued:
                self.refuse(waiter, Refusal(code="shutting_down", final=False))

    def run(self) -> None:
        """Passes until one lets nobody go."""
        self._woken, self._passing, self._again = False, True, True
        try:
            self.queue.renew_if_due()
            while self._again:
                self._again = False
                self._pass()
        finally:
            self._passing = False

    def _pass(self) -> None:
        self.counts.passes += 1
        look, free_of = self.queue.look, self.queue.homes.free_of
        heap = [(look(waiter), waiter) for waiter in self.queue.candidates()]
        heapq.heapify(heap)
        while heap:
            turn, waiter = heapq.heappop(heap)
            self.counts.looks += 1
            must_be_heard = waiter.stale or bool(waiter.asides)
            if not waiter.queued or not (must_be_heard or free_of(waiter.ticket.engines)):
                continue
            if (current := turn if waiter.seen_at == self._slots.changes else look(waiter)) != turn:
                heapq.heappush(heap, (current, waiter))  # its run was served meanwhile, or a slot taken
                continue
            if must_be_heard or waiter.engine:
                self._consider(waiter)
                if waiter.asides and not must_be_heard:  # what it has now bars others, most likely all that wait for the same
                    heap = self.queue.not_idle(heap)
            following = self.queue.flows.head(waiter.flow)
            if following is not None and following is not waiter:
                heapq.heappush(heap, (look(following), following))

    def _consider(self, waiter: Waiter) -> None:
        """One head's turn."""
        slot = waiter.engine != ""
        halted = waiter.ticket.halted()
        if waiter.counting or (halted and not waiter.stale):
            return
        verdict = waiter.verdict if not waiter.asides and waiter.still_blocked() else self._decide(waiter)
        match verdict:
            case Final():
                self.refuse(waiter, budget_reached(verdict))
            case Send() if slot and not halted:
                self._admit(waiter, verdict)
            case Count() if not halted and self._counting.may_begin(waiter):
                self._effects.count(waiter)
            case Wait() if not halted and (slot or waiter.asides):
                if self.queue.places.set_aside(waiter):
                    self.wake(Cause.DROPPED)

    def _decide(self, waiter: Waiter) -> Decision:
        verdict = decide(waiter.view(), waiter.demand, waiter.patience)
        waiter.decided(verdict, self._now_ms)
        self.queue.decided(waiter)
        return verdict

    def _admit(self, waiter: Waiter, send: Send, checked_ms: int | None = None) -> None:
        """It leaves the queue, one way or the other. `checked_ms`: the moment for which it is known that it may still go."""
        now = self._now_ms() if checked_ms is None else checked_ms
        if checked_ms is None and (refusal := waiter.ticket.check(now)) is not None:
            self.refuse(waiter, refusal)
            return
        at_home = self.queue.homes.served(waiter, waiter.engine)
        admission = admission_of(waiter, send, now, at_home)
        self._slots.take(waiter.engine)
        self.queue.flows.served(waiter)
        if waiter.queued:
            self._remove(waiter)
        self.counts.admitted(send.clamped_by is not None, at_home)
        deadline_ms = waiter.ticket.ends_at_ms
        self._effects.commit(waiter.ticket, admission)
        if waiter.ticket.ends_at_ms != deadline_ms:
            self.queue.clock_begun(waiter.run)
        self.wake(Cause.ADMITTED)

    def _at_once(self, waiter: Waiter, now: int) -> bool:
        """Nobody waits: the call need not enter the queue if it can be answered now. It was checked for this moment."""
        at_once = unhindered(waiter.limits, self._balances.numbers, waiter.demand, waiter.patience)
        verdict = at_once or decide(waiter.plain_view(self._balances), waiter.demand, waiter.patience)
        if isinstance(verdict, Final):
            self.refuse(waiter, budget_reached(verdict))
            return True
        if isinstance(verdict, Send) and self.queue.finds_slot(waiter) and not waiter.ticket.halted():
            self._admit(waiter, verdict, now)
            return True
        return False

    def _hopeless(self, waiter: Waiter) -> Refusal | None:
        """What one call can never have, by exact figures or where none are to be had. A limit that is spent is named first."""
        demand = waiter.demand
        if demand.can_count and not demand.exact:
            return None
        refusal = waiter.ticket.check_prompt(demand.prompt_tokens, demand.exact)
        over = spent(waiter.plain_view(self._balances), demand) if refusal is not None else None
        return refusal if over is None else budget_reached(over)

    def _enqueue(self, waiter: Waiter) -> None:
        if len(self.queue) >= self._queue_length:
            self.refuse(waiter, Refusal(code="overloaded", final=False))
            return
        self.counts.waited += 1
        self.queue.enter(waiter)
        if len(self.queue) == 1:
            self.run()
        else:
            self.wake(Cause.ARRIVED)

    def _remove(self, waiter: Waiter) -> None:
        self.queue.remove(waiter)
        self._count_ended(waiter)

    def _count_ended(self, waiter: Waiter) -> None:
        for other in self._counting.ended(waiter):
            if other.queued and other.over:
                self._end(other)
            elif other.queued:
                self.queue.mark(other)

    def _midnight(self) -> None:
        self.queue.renew()
        self.wake(Cause.MIDNIGHT)

    def _wait_changed(self, waiter: Waiter) -> None:
        """A timer of this wait rang."""
        now = self._now_ms()
        if now >= waiter.ends_ms:
            self._end(waiter)
        elif now >= waiter.clamp_ms and waiter.patience is Patience.REACH:
            waiter.patience = Patience.ENOUGH
            self.queue.mark(waiter)
            self.wake(Cause.ENOUGH)
        elif waiter.home_until_ms is not None and now >= waiter.home_until_ms:
            self.wake(Cause.AWAY)
        if waiter.queued:
            self.queue.set_alarm(waiter)

    def _end(self, waiter: Waiter) -> None:
        """The wait is over: whatever can be said is said now; only a count is still awaited."""
        self.queue.renew_if_due()
        waiter.over, waiter.patience = True, Patience.LEAST
        if (refusal := waiter.ticket.check(self._now_ms())) is not None:
            self.refuse(waiter, refusal, Cause.ENDED)
        elif not waiter.counting:
            self._say(waiter, self._decide(waiter))

    def _say(self, waiter: Waiter, verdict: Decision) -> None:
        halted = waiter.ticket.halted()
        match verdict:
            case Final():
                self.refuse(waiter, budget_reached(verdict), Cause.ENDED)
            case Count():
                if self._counting.may_begin(waiter):
                    self._effects.count(waiter)
            case Send() if not halted and self.queue.flows.is_head(waiter) and self.queue.finds_slot(waiter):
                self._admit(waiter, verdict)
            case Send() | Wait():
                self.refuse(waiter, in_vain(verdict, halted, self.queue.homes.out(waiter)), Cause.ENDED)
            case _:
                assert_never(verdict)
