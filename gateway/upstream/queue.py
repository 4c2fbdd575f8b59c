"""Who waits: the flows, the accounts they wait on, their alarms, and which heads must be looked at again.

Rule: a call is in all of these or in none; what it leaves behind is only the tick at which it was served.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gateway.accounting.balances import Balances
from gateway.accounting.decision import Wait
from gateway.upstream.alarms import Alarms, Timers
from gateway.upstream.flows import Flows, Turn
from gateway.upstream.homes import AFFINITY_WAIT_MS, Homes
from gateway.upstream.places import Places
from gateway.upstream.slots import Slots
from gateway.upstream.waiter import Waiter, WaitingView


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    queue_length: int = 1_000
    """Calls that wait, over all runs; the next is refused as `overloaded`."""
    affinity_wait_ms: int = AFFINITY_WAIT_MS
    """How long a call waits for the engine that served its flow last, though another has a slot; 0: whichever is emptiest serves."""


class Queue:
    def __init__(
        self,
        balances: Balances,
        slots: Slots,
        now_ms: Callable[[], int],
        timers: Timers,
        due: Callable[[Waiter], object],
        midnight: Callable[[], object],
        affinity_wait_ms: int,
    ) -> None:
        self.flows = Flows()
        self.homes = Homes(slots, now_ms, affinity_wait_ms, self.set_alarm)
        self.places = Places(balances)
        self._slots = slots
        self._now_ms = now_ms
        self._alarms = Alarms(now_ms, timers, due, midnight)
        self._waiters: dict[Waiter, None] = {}
        self._stale: dict[Waiter, None] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter]:
        """In order of arrival; may be changed meanwhile."""
        return iter(list(self._waiters))

    def enter(self, waiter: Waiter) -> None:
        self._waiters[waiter] = None
        waiter.queued, waiter.halted = True, waiter.ticket.halted()
        self.flows.append(waiter)
        waiter.position = self.flows.position(waiter)
        self.places.enter(waiter, waiter.limits)
        if self.flows.is_head(waiter):
            self.mark(waiter)
        self._alarms.set(waiter)
        self._alarms.watch_window(waiter)

    def remove(self, waiter: Waiter) -> None:
        waiter.queued = False
        del self._waiters[waiter]
        self._stale.pop(waiter, None)
        self._alarms.cancel(waiter)
        self.flows.remove(waiter)
        self.places.leave(waiter)
        following = self.flows.head(waiter.flow)
        if following is not None:
            self.mark(following)

    def mark(self, waiter: Waiter) -> None:
        """It must be decided again when it is the head of its flow, slot or no slot."""
        waiter.stale = True
        self._stale[waiter] = None

    def decided(self, waiter: Waiter) -> None:
        self._stale.pop(waiter, None)

    def clock_begun(self, run: tuple[str, str]) -> None:
        """With its first call a run has come to have a deadline: its other waits may end sooner."""
        for waiter in self._waiters:
            if waiter.run == run:
                self._alarms.set(waiter)
                self.mark(waiter)

    def set_alarm(self, waiter: Waiter) -> None:
        self._alarms.set(waiter)

    def candidates(self) -> Iterable[Waiter]:
        """Heads that could go, or that must be told something; the others are not looked at."""
        for place, raised in self.places.take_changed():
            for head in map(self.flows.head, place.flows):
                if head is not None and place in head.places and head.hear(place, raised):
                    self.mark(head)
        found = dict.fromkeys(filter(self.flows.is_head, self._stale))
        found.update((place.holder, None) for place in self.places.held() if place.holder is not None)
        open_to: dict[Waiter, None] = {}
        all_free = True
        for engine in self.flows.engines():
            if self._slots.any_free(engine):
                open_to.update(dict.fromkeys(self.flows.heads_at(engine)))
            else:
                all_free = False
        idle = self.places.idle
        for head in open_to:
            if head.blocked is None or not idle(head):
                found[head] = None
            elif not all_free:  # else nobody's home is full
                self.homes.begin(head)
        return found

    def not_idle(self, heap: list[tuple[Turn, Waiter]]) -> list[tuple[Turn, Waiter]]:
        """Of a pass under way those of whom something can come still, as a heap."""
        idle = self.places.idle
        left = [pair for pair in heap if pair[1].blocked is None or not idle(pair[1])]
        heapq.heapify(left)
        return left

    def renew_if_due(self) -> None:
        if self._alarms.window_is_over():
            self.renew()

    def renew(self) -> None:
        """Midnight: whoever waits on a window that ended resolves its limits anew."""
        now = self._now_ms()
        for waiter in self._waiters:
            if waiter.window_ms is not None and waiter.window_ms <= now:
                self.places.enter(waiter, waiter.ticket.resolve(now))
                self.mark(waiter)
        self._alarms.next_window(self._waiters)

    def look(self, waiter: Waiter) -> Turn:
        """Where it would go now, and whose turn it is there."""
        waiter.engine = self.flows.longest_ago(waiter, self.homes.open_to(waiter))
        waiter.seen_at = self._slots.changes
        return self.flows.turn(waiter)

    def finds_slot(self, waiter: Waiter) -> bool:
        waiter.engine = self.flows.longest_ago(waiter, self.homes.open_to(waiter))
        return waiter.engine != ""

    def engine_is_out(self, engine: str) -> None:
        self.homes.lost(engine)
        for waiter in self._waiters:
            if engine in waiter.ticket.engines and self.homes.out(waiter):
                self.places.drop_asides(waiter)

    def views(self) -> list[WaitingView]:
        return [self._view(waiter) for waiter in self._waiters]

    def _view(self, waiter: Waiter) -> WaitingView:
        ticket, now = waiter.ticket, self._now_ms()
        away = waiter.home_until_ms is not None and now < waiter.home_until_ms and not self.homes.open_to(waiter)
        return WaitingView(
            call_id=ticket.call_id,
            campaign=ticket.campaign,
            run=ticket.run,
            lane=ticket.lane,
            engines=ticket.engines,
            position=self.flows.position(waiter),
            waited_ms=now - waiter.arrived_ms,
            in_the_way=waiter.verdict.shortfall if isinstance(waiter.verdict, Wait) else None,
            halted=ticket.halted(),
            counting=waiter.counting,
            out=self.homes.out(waiter),
            home=(self.homes.of(waiter) or "") if away else "",
            sets_aside=tuple(limit.name for limit, place in zip(waiter.limits, waiter.places, strict=True) if place.holder is waiter),
        )
