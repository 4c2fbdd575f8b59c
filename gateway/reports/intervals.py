"""Times that overlap: how long they are added up, how long they cover together, and where nothing was. Whole milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Interval = tuple[int, int]
HOUR_MS = 3_600_000


def summed(intervals: Iterable[Interval]) -> int:
    return sum(end - start for start, end in intervals)


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Without overlap, in order; what touches is one."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def gaps(covered: Iterable[Interval], window: Interval) -> Iterator[Interval]:
    """Where a window is not covered. `covered`: merged."""
    at = window[0]
    for start, end in covered:
        if start > at:
            yield at, min(start, window[1])
        at = max(at, end)
        if at >= window[1]:
            return
    if at < window[1]:
        yield at, window[1]


def whole_hours(intervals: Iterable[Interval]) -> list[int]:
    """The starts of the clock hours (UTC) that lie wholly inside one of them."""
    return [hour for start, end in intervals for hour in range(-(-start // HOUR_MS) * HOUR_MS, end - HOUR_MS + 1, HOUR_MS)]
