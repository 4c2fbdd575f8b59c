"""When calls waited and computed. A sum adds what overlapped; a union is time on a clock. The two are told apart, and neither is the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from gateway.reports.call_rows import Row
from gateway.reports.intervals import HOUR_MS, Interval, gaps, merged, summed, whole_hours


@dataclass(slots=True)
class Times:
    """Two whole numbers a call and kind are all that is kept."""

    waiting: list[Interval] = field(default_factory=list)
    computing: list[Interval] = field(default_factory=list)
    by_upstream: dict[str, list[Interval]] = field(default_factory=dict)
    in_vain: list[Interval] = field(default_factory=list)
    """Waits that ended in a refusal."""
    not_known: int = 0
    """Calls whose end nobody saw: lost, or still running."""

    def add(self, call: Row) -> None:
        admitted = cast(int, call["admitted_ms"])
        if waited := cast(int, call.get("waited_ms", 0)):
            self.waiting.append((admitted - waited, admitted))
        end = _end(call)
        if end is None:
            self.not_known += 1
            return
        worked = (admitted, end)
        self.computing.append(worked)
        self.by_upstream.setdefault(cast(str, call["upstream"]), []).append(worked)

    def add_refusal(self, refusal: Row) -> None:
        if waited := cast(int, refusal.get("waited_ms", 0)):
            self.in_vain.append((cast(int, refusal["at_ms"]) - waited, cast(int, refusal["at_ms"])))

    def document(self, slots: Mapping[str, int], wall: Interval) -> Row:
        """`wall`: from the campaign's opening to its closing, or its last entry."""
        found: Row = {
            "waiting": {"calls": len(self.waiting), "sum_ms": summed(self.waiting), "union_ms": summed(merged(self.waiting))},
            "waiting_refused": {"calls": len(self.in_vain), "sum_ms": summed(self.in_vain), "union_ms": summed(merged(self.in_vain))},
            "computing": {"calls": len(self.computing), "sum_ms": summed(self.computing), "union_ms": summed(merged(self.computing))},
            "not_known": self.not_known,
            "wall_ms": wall[1] - wall[0],
        }
        window = self.window
        if window is not None:
            idle = list(gaps(merged(self.computing), window))
            found["window"] = {"from_ms": window[0], "to_ms": window[1], "ms": window[1] - window[0]}
            found["idle"] = {"ms": summed(idle), "longest_ms": max((end - start for start, end in idle), default=0), "hours": whole_hours(idle)}
            found["occupancy"] = [_occupancy(upstream, busy, slots.get(upstream), window) for upstream, busy in sorted(self.by_upstream.items())]
        return found

    @property
    def window(self) -> Interval | None:
        """From the first call's arrival to the last one's end; None where nothing ran."""
        every = [*self.waiting, *self.computing]
        return (min(start for start, _ in every), max(end for _, end in every)) if self.computing else None


def _end(call: Row) -> int | None:
    if call.get("outcome") == "lost" or "ended_ms" not in call:
        return None
    times = cast(Row, cast(Row, call.get("seen", {})).get("times_ms", {}))
    admitted = cast(int, call["admitted_ms"])
    return admitted + times["end"] if isinstance(times.get("end"), int) else cast(int, call["ended_ms"])  # type: ignore[operator]


def _occupancy(upstream: str, busy: list[Interval], slots: int | None, window: Interval) -> Row:
    """How much of its slots' time within the window was used; without a number of slots that is not known."""
    row: Row = {"upstream": upstream, "busy_sum_ms": summed(busy), "busy_union_ms": summed(merged(busy))}
    if slots is not None:
        row["slots"] = slots
        if window[1] > window[0]:
            row["per_mille"] = round(1000 * summed(busy) / (slots * (window[1] - window[0])))
    return row


def rates(amounts: Mapping[str, int], over_ms: int) -> Row | None:
    """Per hour, rounded; None where no time passed."""
    return {name: round(amount * HOUR_MS / over_ms) for name, amount in amounts.items()} if over_ms > 0 else None
