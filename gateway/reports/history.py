"""One run as it went, for a page: its calls in time, what was refused, what is on record of it, and how each of its accounts rose. Bounded.

The rule: from the run's own entries alone, the last so many of them; prompts stand in none, and what was asked of a call is left to its explanation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from gateway.accounting.call_row import STATUS
from gateway.accounting.chain import decode
from gateway.accounting.entries import LedgerEntry
from gateway.accounting.receipt import given_out
from gateway.accounting.tally import Content
from gateway.reports.call_rows import Row, call_rows

ENTRIES_MAX: Final = 6_000
CALLS_MAX: Final = 500
REFUSALS_MAX: Final = 100
EVENTS_MAX: Final = 100
RECONCILED: Final = "reconciled"
POINTS_MAX: Final = 240
"""Of one account: more than a screen has room for."""

Point = tuple[int, int, int]
"""When, settled, reserved."""


def history(entries: Iterable[LedgerEntry], balances: Mapping[str, Sequence[int]]) -> Row:
    """`entries`: the end of a run's chain, in order. `balances`: reserved and settled of the accounts that are wanted, by key, as they stand after it."""
    contents: list[Content] = []
    receipt: Row | None = None
    for entry in entries:
        contents.append(content := decode(entry.body))
        if entry.kind == "receipt":
            receipt = given_out(content, entry.hash)
    events = [_told(content) for content in contents if content["kind"] == "event"]
    calls = [_slim(row) for row in call_rows(_whole(contents), "").values()]
    found: Row = {
        "calls": calls[-CALLS_MAX:],
        "calls_not_shown": max(0, len(calls) - CALLS_MAX),
        "refusals": [refusal_row(content) for content in contents if content["kind"] in ("refuse", "refusal_summary")][-REFUSALS_MAX:],
        "events": [event for event in events if event["name"] != RECONCILED][-EVENTS_MAX:],
        "series": _series(contents, balances),
    }
    if (noted := reconciled(contents)) is not None:
        found["reconciled"] = noted
    if receipt is not None:
        found["receipt"] = receipt
    return found


def reconciled(contents: Iterable[Content]) -> Row | None:
    """The last reconciliation that was put on record."""
    noted = [content for content in contents if content["kind"] == "event" and content["name"] == RECONCILED]
    return _told(noted[-1]) if noted else None


def refusal_row(content: Content) -> Row:
    """Of one entry; a sum of a flood has `count` and from when to when."""
    names = ("call", "campaign", "run", "lane", "model", "at_ms", "code", "final", "limit", "waited_ms", "field", "count", "since_ms", "until_ms")
    return {name: content[name] for name in names if name in content}


def _whole(contents: Sequence[Content]) -> list[Content]:
    """Without the end of a call whose reservation lies before the first entry that was read."""
    reserved = {content["call"] for content in contents if content["kind"] == "reserve"}
    return [content for content in contents if content["kind"] == "reserve" or (content["kind"] in STATUS and content["call"] in reserved)]


def _slim(row: Row) -> Row:
    """What is drawn and tabled. `first_byte_ms`, `took_ms`: from admission; absent where nobody saw it."""
    times = cast(Row, cast(Row, row.get("seen", {})).get("times_ms", {}))
    slim = {name: value for name, value in row.items() if name not in ("asked", "seen", "key", "label", "number", "closing_number", "campaign", "run")}
    if "first_byte" in times:
        slim["first_byte_ms"] = times["first_byte"]
    if "end" in times:
        slim["took_ms"] = times["end"]
    elif "ended_ms" in row:
        slim["took_ms"] = cast(int, row["ended_ms"]) - cast(int, row["admitted_ms"])
    return slim


def _told(event: Content) -> Row:
    return {name: event[name] for name in ("name", "at_ms", "about_call", "details") if event.get(name)}


def _series(contents: Sequence[Content], balances: Mapping[str, Sequence[int]]) -> dict[str, list[Point]]:
    """Backwards from what stands, so that a chain of which only the end was read is drawn right."""
    rising: dict[str, deque[Point]] = {key: deque() for key in balances}
    now = {key: (settled, reserved) for key, (reserved, settled) in balances.items()}
    for content in reversed(contents):
        for key, reserved, settled in cast("Sequence[tuple[str, int, int]]", content.get("postings", ())):
            if key in rising:
                stood = now[key]
                rising[key].appendleft((cast(int, content["at_ms"]), *stood))
                now[key] = (stood[0] - settled, stood[1] - reserved)
    return {key: _thinned(list(points)) for key, points in rising.items() if points}


def _thinned(points: list[Point]) -> list[Point]:
    """Every so-manieth and the last."""
    step = -(-len(points) // POINTS_MAX)
    return [*points[:-1:step], points[-1]]
