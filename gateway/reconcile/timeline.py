"""A run's calls in time, as one inline SVG: a bar from admission to end, calls that ran side by side one above the other. No script, no colour alone."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from gateway.reconcile.ledger_side import LedgerCall
from gateway.reconcile.match import Match

WIDTH: Final = 1_000
MARGIN: Final = 8
ROW: Final = 18
BAR: Final = 12
AXIS: Final = 26
CALLS_MAX: Final = 2_000
ROWS_MAX: Final = 24
"""Side by side; what would stand higher is drawn on the highest."""
TICKS: Final = 5


def timeline(name: str, matches: Sequence[Match]) -> str:
    """Of one run; empty where it has no call."""
    drawn = [(each, call) for each in matches if (call := each.call) is not None][:CALLS_MAX]
    calls = [call for _, call in drawn]
    if not calls:
        return ""
    first = min(call.admitted_ms - call.waited_ms for call in calls)
    last = max(max(call.until_ms for call in calls), first + 1)
    places = rows_of([(call.admitted_ms, call.until_ms) for call in calls])
    height = (max(places) + 1) * ROW + AXIS + MARGIN
    scale = (WIDTH - 2 * MARGIN) / (last - first)
    shapes = [_bar(each, call, MARGIN + (call.admitted_ms - first) * scale, place, scale) for (each, call), place in zip(drawn, places, strict=True)]
    wrong = sum(not each.explained for each, _ in drawn)
    words = f"{len(calls)} calls of run {name} from {_moment(first)} to {_moment(last)}; {wrong} unexplained. Every call is a row of the table below."
    label = escape(name, quote=True)
    return (
        f'<svg role="img" viewBox="0 0 {WIDTH} {height}" aria-label="Calls of run {label} in time">'
        f"<title>Calls of run {escape(name)} in time</title><desc>{escape(words)}</desc>"
        + "".join(_tick(first, last, at, height) for at in range(TICKS + 1))
        + "".join(shapes)
        + "</svg>"
    )


def rows_of(spans: Iterable[tuple[int, int]]) -> list[int]:
    """For each beginning and end, in the order of their beginnings: the lowest row that is free when it begins."""
    busy: list[tuple[int, int]] = []
    free = list(range(ROWS_MAX))
    rows = []
    for begins, ends in spans:
        while busy and busy[0][0] <= begins:
            heapq.heappush(free, heapq.heappop(busy)[1])
        row = heapq.heappop(free) if free else ROWS_MAX - 1
        if row < ROWS_MAX - 1 or free:
            heapq.heappush(busy, (ends, row))
        rows.append(row)
    return rows


def _bar(each: Match, call: LedgerCall, x: float, place: int, scale: float) -> str:
    y = MARGIN + place * ROW
    width = max((call.until_ms - call.admitted_ms) * scale, 2.0)
    waited = call.waited_ms * scale
    wait = f'<line class="wait" x1="{x - waited:.1f}" y1="{y + BAR / 2}" x2="{x:.1f}" y2="{y + BAR / 2}"/>' if waited >= 1 else ""
    kind = "equal" if each.name == "equal" else "explained" if each.explained else "unexplained"
    mark = "" if each.explained else f'<text class="mark" x="{x + width / 2:.1f}" y="{y + BAR - 2}" text-anchor="middle">!</text>'
    seconds = (call.until_ms - call.admitted_ms) / 1000
    by = f", by {each.by.value}" if each.by else ""
    told = f"{call.call_id}: {each.name.value}{by}; {call.outcome or 'open'}; {seconds:.1f} s from {_moment(call.admitted_ms)}"
    return f'<g>{wait}<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"><title>{escape(told)}</title></rect>{mark}</g>'


def _tick(first: int, last: int, at: int, height: int) -> str:
    x = MARGIN + (WIDTH - 2 * MARGIN) * at / TICKS
    anchor = "start" if at == 0 else "end" if at == TICKS else "middle"
    moment = _moment(first + (last - first) * at // TICKS)
    moment = moment if at in (0, TICKS) else moment.partition(" ")[2]
    return (
        f'<line class="tick" x1="{x:.1f}" y1="{MARGIN}" x2="{x:.1f}" y2="{height - AXIS}"/>'
        f'<text class="tick" x="{x:.1f}" y="{height - MARGIN}" text-anchor="{anchor}">{moment}</text>'
    )


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
