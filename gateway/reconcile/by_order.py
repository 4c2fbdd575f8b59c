"""Pairs by their place alone: what an id or exact usage left over, between what stands fast. Pure.

Answers: as many rows as calls between the same two neighbours. An agent's own estimates: as many rows as calls of one shape. Failures: the last failed
try before the row was written. Where the numbers do not come out, nothing is paired.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from gateway.reconcile.fits import TIGHT_MS, WINDOW_MS, Anchors, Session, fits, in_session, in_time, moments, session_of
from gateway.reconcile.id_forms import identifying
from gateway.reconcile.ledger_side import LedgerCall
from gateway.reconcile.match import By, LedgerItem, Pair
from gateway.reconcile.record import DispatchRecord

LOOKS_MAX: Final = 1_000_000
"""Rows times calls of one gap: beyond it nothing is told from order alone."""
DAY_MS: Final = 86_400_000
QUEUE_MS: Final = 120_000
"""The longest wait for admission: a row may bear the time at which its request was made."""
BACK_MAX: Final = 64
"""How many tries that are spoken for are passed over in search of one that is not."""


def pair_answers(calls: Sequence[LedgerCall], records: Sequence[DispatchRecord], anchors: Anchors, window_ms: int = WINDOW_MS) -> list[Pair]:
    """`calls`: that no row tells of yet, in order."""
    pairs: list[Pair] = []
    taken: set[int] = set()
    admitted = [call.admitted_ms for call in calls]
    for (session, gap), rows in _gaps(records, anchors).items():
        low, high = anchors.bounds(session, gap)
        shapes = anchors.shapes.get(session, set())
        near = _near(calls, admitted, rows, window_ms)
        free = [call for call in near if low < call.number < high and id(call) not in taken and call.answered and not _beside(call, shapes)]
        if len(free) * len(rows) > LOOKS_MAX:
            continue
        fitting = [call for call in free if any(fits(call, row, anchors, window_ms) for row in rows)]
        kin = anchors.hold(session) or any(_akin(call, row) for call in fitting for row in rows)
        if kin and len(fitting) == len(rows) and all(_could_be(call, row, anchors, window_ms) for call, row in zip(fitting, rows, strict=True)):
            pairs += [Pair(item=call, record=row, by=By.ORDER) for call, row in zip(fitting, rows, strict=True)]
            taken |= {id(call) for call in fitting}
    return pairs


def _near(calls: Sequence[LedgerCall], admitted: Sequence[int], rows: Sequence[DispatchRecord], window_ms: int) -> Sequence[LedgerCall]:
    """Those that began before the last of the rows was written, and not a day before the first."""
    times = [moment for row in rows for moment in moments(row)]
    if not times or any(not moments(row) for row in rows):
        return calls
    return calls[bisect_left(admitted, min(times) - DAY_MS) : bisect_right(admitted, max(times) + window_ms + QUEUE_MS)]


def _akin(call: LedgerCall, record: DispatchRecord) -> bool:
    """Something speaks for it besides the time: else any two sessions of one hour would do."""
    numbers = {call.usage.input_tokens, call.usage.output_tokens} & {record.usage.input_tokens, record.usage.output_tokens}
    return bool(numbers - {None, 0}) or not call.session.isdisjoint(record.session_ids)


def _gaps(records: Sequence[DispatchRecord], anchors: Anchors) -> dict[tuple[Session, int], list[DispatchRecord]]:
    gaps: dict[tuple[Session, int], list[DispatchRecord]] = {}
    for record in sorted(records, key=lambda record: (session_of(record), record.order)):
        gaps.setdefault((session_of(record), anchors.gap(record)), []).append(record)
    return gaps


def _beside(call: LedgerCall, shapes: set[tuple[str, bool]]) -> bool:
    """Not of the conversation that the session's other rows tell of."""
    return bool(shapes) and any(tools for _, tools in shapes) and not call.tools


def _could_be(call: LedgerCall, record: DispatchRecord, anchors: Anchors, window_ms: int) -> bool:
    """An id that is not the call's forbids it, unless the call's own was never seen."""
    strange = record.response_id and identifying(record.response_id) and call.response_id
    parts = any(identifying(ident) for ident in (*record.item_ids, *record.tool_call_ids)) and (call.item_ids or call.tool_call_ids)
    return not strange and not parts and fits(call, record, anchors, window_ms)


def pair_estimates(
    calls: Sequence[LedgerCall], records: Sequence[DispatchRecord], anchors: Anchors, window_ms: int = WINDOW_MS
) -> tuple[list[Pair], list[tuple[list[LedgerItem], list[DispatchRecord]]]]:
    """And what fits in more than one way. Where some calls stream, those are the conversation: what an agent asks on the side it shows to nobody."""
    sessions: dict[Session, list[DispatchRecord]] = {}
    for record in sorted(records, key=lambda record: record.order):
        sessions.setdefault(session_of(record), []).append(record)
    pairs: list[Pair] = []
    several: list[tuple[list[LedgerItem], list[DispatchRecord]]] = []
    admitted = [call.admitted_ms for call in calls]
    for same in sessions.values():
        near = _near(calls, admitted, same, window_ms)
        if len(near) * len(same) > LOOKS_MAX:
            continue
        for within_ms in (min(TIGHT_MS, window_ms), window_ms):  # such a row has little but its time
            shown, rows = _shown(near, same, anchors, within_ms)
            if shown:
                break
        if len(rows) == len(shown) and all(fits(call, row, anchors, within_ms) for call, row in zip(shown, rows, strict=True)):
            pairs += [Pair(item=call, record=row, by=By.ORDER) for call, row in zip(shown, rows, strict=True)]
        elif shown:
            several.append((list(shown), rows))
    return pairs, several


def _shown(calls: Sequence[LedgerCall], rows: Sequence[DispatchRecord], anchors: Anchors, within_ms: int) -> tuple[list[LedgerCall], list[DispatchRecord]]:
    fitting = [call for call in calls if call.answered and any(fits(call, row, anchors, within_ms) for row in rows)]
    shown = [call for call in fitting if call.stream] or fitting
    return shown, [row for row in rows if any(fits(call, row, anchors, within_ms) for call in shown)]


def pair_failures(tries: Sequence[LedgerItem], records: Sequence[DispatchRecord], window_ms: int = WINDOW_MS) -> list[Pair]:
    """`tries`: all that did not come to an answer, and no row tells of yet. The last one before a row was written is the row's."""
    ordered = sorted(tries, key=_over_ms)
    times = [_over_ms(each) for each in ordered]
    taken: set[int] = set()
    pairs: list[Pair] = []
    for record in sorted(records, key=lambda record: max(moments(record), default=2**62)):
        written = max(moments(record), default=None)
        last = bisect_right(times, written + TIGHT_MS) if written is not None else len(times)
        for place in range(last - 1, max(last - 1 - BACK_MAX, -1), -1):
            if written is not None and times[place] < written - window_ms:
                break
            if place not in taken and _failed_so(ordered[place], record, window_ms):
                taken.add(place)
                pairs.append(Pair(item=ordered[place], record=record, by=By.ORDER))
                break
    return pairs


def _over_ms(item: LedgerItem) -> int:
    return item.until_ms if isinstance(item, LedgerCall) else item.at_ms


def _failed_so(item: LedgerItem, record: DispatchRecord, window_ms: int) -> bool:
    if not isinstance(item, LedgerCall):
        return True
    other_status = record.status is not None and item.http_status is not None and item.http_status >= 400 and record.status != item.http_status
    return in_session(item, record) and in_time(item, record, window_ms) and not other_status
