"""Pairs without an id: exact usage, in the session, in time and in order, and only where nothing else fits. Pure.

Rows and calls with the same numbers make a group. In it a pair is made where a row fits one call alone, or where there are as many rows as calls and
each fits the other in order; what is left of the group is undecided.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from gateway.reconcile.comparing import same_usage
from gateway.reconcile.fits import TIGHT_MS, WINDOW_MS, Anchors, fits, moments, session_of
from gateway.reconcile.ledger_side import LedgerCall
from gateway.reconcile.match import By, Pair, Undecided
from gateway.reconcile.record import DispatchRecord
from gateway.reconcile.rising import in_every_longest_rise

FITS_MAX: Final = 16
"""A row that fits more calls than these fits too many."""

Edges = dict[int, list[int]]
"""Place of a row in its group -> places of the calls that fit it."""
Component = tuple[list[int], list[int]]
"""Places of rows, and of calls."""


def pair_by_usage(
    calls: Sequence[LedgerCall], records: Sequence[DispatchRecord], anchors: Anchors, window_ms: int = WINDOW_MS
) -> tuple[list[Pair], list[Undecided]]:
    groups: dict[tuple[int | None, int | None], tuple[list[DispatchRecord], list[LedgerCall]]] = {}
    for record in records:
        groups.setdefault((record.usage.input_tokens, record.usage.output_tokens), ([], []))[0].append(record)
    for call in calls:
        if (group := groups.get((call.usage.input_tokens, call.usage.output_tokens))) and call.answered:
            group[1].append(call)
    pairs: list[Pair] = []
    undecided: list[Undecided] = []
    for rows, found in groups.values():
        if found:
            made, open_ones = _group(sorted(rows, key=_place), sorted(found, key=lambda call: call.number), anchors, window_ms)
            pairs += made
            undecided += open_ones
    return _in_order(pairs), undecided


def _place(record: DispatchRecord) -> tuple[int, str, int]:
    return (min(moments(record), default=0), record.session, record.order)


def _group(rows: Sequence[DispatchRecord], calls: Sequence[LedgerCall], anchors: Anchors, window_ms: int) -> tuple[list[Pair], list[Undecided]]:
    if len(rows) == len(calls) and all(_fits(call, row, anchors, window_ms) for row, call in zip(rows, calls, strict=True)):
        return [_pair(row, call) for row, call in zip(rows, calls, strict=True)], []
    pairs: list[Pair] = []
    undecided: list[Undecided] = []
    for several in _solved(_edges(rows, calls, anchors, window_ms), rows, calls, pairs):
        some_rows, some_calls = [rows[place] for place in several[0]], [calls[place] for place in several[1]]
        tight = _edges(some_rows, some_calls, anchors, min(TIGHT_MS, window_ms))
        for row_places, call_places in _solved(tight, some_rows, some_calls, pairs):
            left, over = [some_rows[place] for place in row_places], [some_calls[place] for place in call_places]
            why = f"rows: {len(left)}, calls: {len(over)}, all with the same numbers in the same time"
            undecided.append(Undecided(items=over, records=left, why=why))
    return pairs, undecided


def _solved(edges: Edges, rows: Sequence[DispatchRecord], calls: Sequence[LedgerCall], pairs: list[Pair]) -> list[Component]:
    """Adds the pairs that are certain; gives what is left."""
    open_ones = []
    for row_places, call_places in _components(edges):
        if len(row_places) > len(call_places):
            open_ones.append((row_places, call_places))
            continue
        left = {row: list(edges[row]) for row in row_places}
        if len(row_places) < len(call_places):
            pairs += _peeled(left, rows, calls)
        for some_rows, some_calls in _components(left):
            if len(some_rows) == len(some_calls) and all(b in left[a] for a, b in zip(some_rows, some_calls, strict=True)):
                pairs += [_pair(rows[a], calls[b]) for a, b in zip(some_rows, some_calls, strict=True)]
            else:
                open_ones.append((some_rows, some_calls))
    return open_ones


def _fits(call: LedgerCall, record: DispatchRecord, anchors: Anchors, window_ms: int) -> bool:
    return same_usage(call, record) and fits(call, record, anchors, window_ms)


def _pair(record: DispatchRecord, call: LedgerCall) -> Pair:
    return Pair(item=call, record=record, by=By.USAGE_AND_ORDER)


def _edges(rows: Sequence[DispatchRecord], calls: Sequence[LedgerCall], anchors: Anchors, window_ms: int) -> Edges:
    begun = [call.admitted_ms for call in calls]
    longest = max(call.until_ms - call.admitted_ms for call in calls) + window_ms
    earliest = max(call.waited_ms for call in calls) + window_ms
    edges: Edges = {}
    for place, row in enumerate(rows):
        times = moments(row)
        first = bisect_left(begun, min(times) - longest) if times else 0
        last = bisect_right(begun, max(times) + earliest) if times else len(calls)
        fitting: list[int] = []
        for at in range(first, last):
            if _fits(calls[at], row, anchors, window_ms):
                fitting.append(at)
                if len(fitting) > FITS_MAX:
                    break
        if fitting:
            edges[place] = fitting
    return edges


def _peeled(edges: Edges, rows: Sequence[DispatchRecord], calls: Sequence[LedgerCall]) -> list[Pair]:
    """Takes out of `edges` every row that fits one call alone, as long as no other such row fits that call."""
    pairs: list[Pair] = []
    rows_of: dict[int, list[int]] = {}
    for row, fitting in edges.items():
        for call in fitting:
            rows_of.setdefault(call, []).append(row)
    waiting = [row for row, fitting in edges.items() if len(fitting) == 1]
    while waiting:
        row = waiting.pop()
        if len(edges.get(row, ())) != 1:
            continue
        call = edges[row][0]
        rivals = [other for other in rows_of[call] if other != row and call in edges.get(other, ())]
        if any(edges[other] == [call] for other in rivals):
            continue
        pairs.append(_pair(rows[row], calls[call]))
        del edges[row]
        for other in rivals:
            edges[other].remove(call)
            if len(edges[other]) == 1:
                waiting.append(other)
    return pairs


def _components(edges: Edges) -> list[Component]:
    """Rows and calls that hang together, each in order."""
    rows_of: dict[int, list[int]] = {}
    for row, fitting in edges.items():
        for call in fitting:
            rows_of.setdefault(call, []).append(row)
    seen: set[int] = set()
    found = []
    for start in edges:
        if start in seen:
            continue
        seen.add(start)
        rows, calls, waiting = {start}, set[int](), [start]
        while waiting:
            for call in edges[waiting.pop()]:
                if call not in calls:
                    calls.add(call)
                    fresh = [row for row in rows_of[call] if row not in seen]
                    seen.update(fresh)
                    rows.update(fresh)
                    waiting += fresh
        found.append((sorted(rows), sorted(calls)))
    return found


def _in_order(pairs: Sequence[Pair]) -> list[Pair]:
    """Without those that stand crosswise in their session: rows follow each other as their calls do, unless the calls ran side by side."""
    sessions: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        sessions.setdefault(session_of(pair.record), []).append(pair)
    kept: list[Pair] = []
    for same in sessions.values():
        same.sort(key=lambda pair: pair.record.order)
        calls = [pair.item for pair in same if isinstance(pair.item, LedgerCall)]
        crossed = _crossed(calls)
        sure = in_every_longest_rise([call.number for call in calls]) if crossed else set[int]()
        kept += [pair for place, pair in enumerate(same) if place not in crossed or place in sure]
    return kept


def _crossed(calls: Sequence[LedgerCall]) -> set[int]:
    """Places of calls that were over before one that a former row tells of began, and of those."""
    crossed: set[int] = set()
    latest = -1
    for place, call in enumerate(calls):
        if latest >= call.until_ms and latest > call.admitted_ms:
            crossed.add(place)
        latest = max(latest, call.admitted_ms)
    earliest = 2**62
    for place in range(len(calls) - 1, -1, -1):
        if earliest <= calls[place].admitted_ms and earliest < 2**62:
            crossed.add(place)
        earliest = min(earliest, calls[place].until_ms)
    return crossed
