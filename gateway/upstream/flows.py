"""Whose turn it is: calls of one run, lane and engine (or engines, where several can serve them) keep their order, lanes of a run take turns, and the run
longest not served at an engine goes first.

Rule: nothing is remembered of a run or lane but the tick at which it was last served. Which engine it was is remembered too, elsewhere (homes.py): it
changes nobody's turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from gateway.upstream.waiter import FlowKey, Waiter

Turn = tuple[int, int, int, int]
REMEMBERED_MAX = 20_000
"""Ticks kept; beyond that the oldest half is forgotten (they count as never served, which only puts them first once)."""


class Flows:
    def __init__(self) -> None:
        self._flows: dict[FlowKey, deque[Waiter]] = {}
        self._at: dict[str, dict[FlowKey, deque[Waiter]]] = {}
        self._run_served: dict[tuple[str, str, str], int] = {}
        self._lane_served: dict[tuple[str, str, str], int] = {}
        self._tick = 0

    def append(self, waiter: Waiter) -> None:
        queue = self._flows.get(waiter.flow)
        if queue is None:
            queue = self._flows[waiter.flow] = deque()
            for engine in waiter.ticket.engines:
                self._at.setdefault(engine, {})[waiter.flow] = queue
        queue.append(waiter)

    def remove(self, waiter: Waiter) -> None:
        queue = self._flows[waiter.flow]
        if queue[0] is waiter:
            queue.popleft()
        else:
            queue.remove(waiter)
        if not queue:
            del self._flows[waiter.flow]
            for engine in waiter.ticket.engines:
                at_engine = self._at[engine]
                del at_engine[waiter.flow]
                if not at_engine:
                    del self._at[engine]

    def head(self, flow: FlowKey) -> Waiter | None:
        queue = self._flows.get(flow)
        return queue[0] if queue else None

    def is_head(self, waiter: Waiter) -> bool:
        return self.head(waiter.flow) is waiter

    def position(self, waiter: Waiter) -> int:
        return self._flows[waiter.flow].index(waiter)

    def heads_at(self, engine: str) -> Iterable[Waiter]:
        return [queue[0] for queue in self._at.get(engine, {}).values()]

    def engines(self) -> Iterable[str]:
        return self._at.keys()

    def turn(self, waiter: Waiter) -> Turn:
        """Sorts heads: those with room set aside first, the oldest first; no two are equal."""
        if waiter.asides:
            return 0, 0, 0, waiter.sequence
        return 1, self._served_at(waiter, waiter.engine or waiter.ticket.engines[0]), self._lane_served.get(waiter.lane_of_run, 0), waiter.sequence

    def longest_ago(self, waiter: Waiter, engines: Sequence[str]) -> str:
        """Of these the one at which its run was served longest ago, of equals the first; empty where there are none."""
        if len(engines) < 2:
            return engines[0] if engines else ""
        (campaign, run), served, best, longest = waiter.run, self._run_served.get, "", -1
        for engine in engines:
            tick = served((campaign, run, engine), 0)
            if longest < 0 or tick < longest:
                best, longest = engine, tick
        return best

    def served(self, waiter: Waiter) -> None:
        """At one of its engines, and that counts at all of them: whoever may go to several has not several turns."""
        self._tick += 1
        for engine in waiter.ticket.engines:
            _remember(self._run_served, (*waiter.run, engine), self._tick)
        _remember(self._lane_served, waiter.lane_of_run, self._tick)

    def _served_at(self, waiter: Waiter, engine: str) -> int:
        return self._run_served.get((*waiter.run, engine), 0)


def _remember(served: dict[tuple[str, str, str], int], key: tuple[str, str, str], tick: int) -> None:
    served.pop(key, None)
    served[key] = tick  # insertion order is order of ticks
    if len(served) > REMEMBERED_MAX:
        for old in list(served)[: REMEMBERED_MAX // 2]:
            del served[old]
