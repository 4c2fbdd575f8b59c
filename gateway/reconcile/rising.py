"""Which of some numbers certainly stand in order: those in every longest rising row of them. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence


def in_every_longest_rise(numbers: Sequence[int]) -> set[int]:
    """Places. Of two that stand crosswise neither is certain."""
    up = _lengths(numbers)
    down = _lengths([-number for number in reversed(numbers)])[::-1]
    longest = max(up, default=0)
    possible = [place for place in range(len(numbers)) if up[place] + down[place] - 1 == longest]
    alone = Counter(up[place] for place in possible)
    return {place for place in possible if alone[up[place]] == 1}


def _lengths(numbers: Sequence[int]) -> list[int]:
    """Of the longest rising row that ends at each."""
    ends: list[int] = []
    lengths = []
    for number in numbers:
        at = bisect_left(ends, number)
        ends[at : at + 1] = [number]
        lengths.append(at + 1)
    return lengths
