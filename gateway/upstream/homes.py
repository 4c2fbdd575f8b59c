"""At which engines a call may go now, and where its run has a home: the engine that served its flow last, and so holds the beginning of its prompt.

Rule: a home never changes whose turn it is. A call whose home is full, while another engine has a slot, waits for it `affinity_wait_ms` at most, from the
moment at which the other was free, whether or not there was room for it then; it bars nobody meanwhile. One for which room was set aside, or whose wait is
over, goes wherever it can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.upstream.slots import Slots
from gateway.upstream.waiter import FlowKey, Waiter

AFFINITY_WAIT_MS = 2_000
"""Unless it is set otherwise. Reading a long prompt anew takes an engine seconds; how many is known to nobody here, so the wait is short and has an end."""
REMEMBERED_MAX = 20_000
"""Homes kept; beyond that the oldest half is forgotten, and those flows go wherever there is most room once."""


class Homes:
    def __init__(self, slots: Slots, now_ms: Callable[[], int], wait_ms: int, on_offer: Callable[[Waiter], object]) -> None:
        """`wait_ms` 0: there are no homes. `on_offer`: a call begins to wait for its home until `home_until_ms`."""
        self._slots = slots
        self._now_ms = now_ms
        self._wait_ms = wait_ms
        self._on_offer = on_offer
        self._homes: dict[FlowKey, str] = {}
        self._free: dict[tuple[str, ...], list[str]] = {}
        """Of each set of engines those with a slot, as found out at `_free_at`: many calls ask the same in one pass."""
        self._free_at = -1

    def of(self, waiter: Waiter) -> str | None:
        return self._homes.get(waiter.flow)

    def served(self, waiter: Waiter, engine: str) -> bool | None:
        """Whether that was its home; None where it had none."""
        if len(waiter.ticket.engines) == 1 or not self._wait_ms:
            return None
        home = self._homes.pop(waiter.flow, None)
        self._homes[waiter.flow] = engine  # insertion order is order of last service
        if len(self._homes) > REMEMBERED_MAX:
            for old in list(self._homes)[: REMEMBERED_MAX // 2]:
                del self._homes[old]
        return None if home is None else home == engine

    def left(self, flow: FlowKey) -> None:
        """A call of the flow failed there: the next goes wherever there is most room."""
        self._homes.pop(flow, None)

    def lost(self, engine: str) -> None:
        """What it held of any prompt is not to be counted on."""
        for flow in [flow for flow, home in self._homes.items() if home == engine]:
            del self._homes[flow]

    def out(self, waiter: Waiter) -> bool:
        """None of its engines takes calls."""
        engines = waiter.ticket.engines
        return not self._may_use(waiter, engines[0]) and not any(self._may_use(waiter, engine) for engine in engines[1:])

    def open_to(self, waiter: Waiter) -> Sequence[str]:
        """The engines with a slot to which it would go now, the best first."""
        engines, takes = waiter.ticket.engines, waiter.ticket.takes
        if len(engines) == 1 and takes is None:
            return engines if self._slots.any_free(engines[0]) else ()
        free = self.free_of(engines)
        if takes is not None:
            free = [engine for engine in free if takes(engine)]
        if not free or len(engines) == 1:
            return free
        home = self._homes.get(waiter.flow)
        if home is None or not self._may_use(waiter, home):
            return free
        if home in free:
            return (home,) if self._patient(waiter) else [home, *(engine for engine in free if engine != home)]
        if waiter.home_until_ms is None:
            waiter.home_until_ms = self._now_ms() + self._wait_ms
            if waiter.queued:
                self._on_offer(waiter)
        return () if self._patient(waiter) else free

    def begin(self, waiter: Waiter) -> None:
        """Another engine has a slot: where its home has none its wait for it begins, though it could not go yet for want of room."""
        if waiter.home_until_ms is None and (home := self._homes.get(waiter.flow)) is not None and not self._slots.any_free(home):
            self.open_to(waiter)

    def free_of(self, engines: tuple[str, ...]) -> Sequence[str]:
        """Those with a slot, the best first. Looked up once while no slot changes."""
        if self._free_at != self._slots.changes:
            self._free_at = self._slots.changes
            self._free.clear()
        free = self._free.get(engines)
        if free is None:
            free = self._free[engines] = self._slots.free_of(engines)
        return free

    def _may_use(self, waiter: Waiter, engine: str) -> bool:
        takes = waiter.ticket.takes
        return not self._slots.out(engine) and (takes is None or takes(engine))

    def _patient(self, waiter: Waiter) -> bool:
        until = waiter.home_until_ms
        return not waiter.over and not waiter.asides and (until is None or self._now_ms() < until)
