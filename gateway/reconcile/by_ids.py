"""Pairs that an id makes: of the answer, of its parts, of the request, or one that the agent sent with this call alone. Pure.

An id that can collide by chance only points: time or usage must agree. Where an id fits several calls, the others that the row bears decide, then time,
then usage; where several are left the row stays unpaired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.reconcile.comparing import same_usage
from gateway.reconcile.fits import WINDOW_MS, in_session, in_time, moments
from gateway.reconcile.id_forms import identifying
from gateway.reconcile.known_ids import own_ids
from gateway.reconcile.ledger_side import LedgerCall, LedgerRefusal
from gateway.reconcile.match import By, LedgerItem, Pair
from gateway.reconcile.record import DispatchRecord, RecordKind

STRENGTH: Final = (RecordKind.ANSWER, RecordKind.ABORTED, RecordKind.ERROR, RecordKind.PLACEHOLDER, RecordKind.LOCAL_ERROR)
"""Of several rows of one call the first of these tells of it."""


FITS_MAX: Final = 64
"""An id that more calls have (servers that give every answer the same) points at none."""


@dataclass(slots=True, kw_only=True)
class ById:
    pairs: list[Pair] = field(default_factory=list)
    besides: dict[int, list[DispatchRecord]] = field(default_factory=dict)
    """More rows of a call, by `id()` of the call: the failed tries and placeholders around its answer."""
    twice: list[Pair] = field(default_factory=list)
    """A second answer of a call that has one."""
    contested: dict[int, list[LedgerItem]] = field(default_factory=dict)
    """By `id()` of the row: what fits it equally well."""
    left: list[DispatchRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Clue:
    by: By
    items: Sequence[LedgerItem]
    proves: bool


class _Index:
    def __init__(self, calls: Sequence[LedgerCall], refusals: Sequence[LedgerRefusal], records: Sequence[DispatchRecord]) -> None:
        self.responses: dict[str, list[LedgerItem]] = {}
        self.items: dict[str, list[LedgerItem]] = {}
        self.tool_calls: dict[str, list[LedgerItem]] = {}
        self.requests: dict[str, list[LedgerItem]] = {}
        self.sessions: dict[str, list[LedgerItem]] = {}
        for call in calls:
            for ids, index in (
                ((call.response_id,), self.responses),
                (call.item_ids, self.items),
                (call.tool_call_ids, self.tool_calls),
                ((call.call_id,), self.requests),
                (call.session, self.sessions),
            ):
                for ident in ids:
                    index.setdefault(ident, []).append(call)
        for refusal in refusals:
            if refusal.call_id:
                self.requests.setdefault(refusal.call_id, []).append(refusal)
        self.rows_of_session = Counter(ident for record in records for ident in record.session_ids)

    def clues(self, record: DispatchRecord) -> list[_Clue]:
        """Strongest first."""
        own = [ident for ident in record.session_ids if self.rows_of_session[ident] == 1 and self._alone(ident, record)]
        found = (
            _clue(By.RESPONSE_ID, self.responses, (record.response_id,) if record.response_id else ()),
            _clue(By.ITEM_ID, self.items, record.item_ids),
            _clue(By.TOOL_CALL_ID, self.tool_calls, record.tool_call_ids),
            _clue(By.REQUEST_ID, self.requests, record.request_ids),
            _clue(By.SESSION_ID, self.sessions, own),
        )
        return [clue for clue in found if clue.items]

    def _alone(self, ident: str, record: DispatchRecord) -> bool:
        """Whether one call alone was sent with it, and the row bears nothing that speaks against that one."""
        calls = [call for call in self.sessions.get(ident, ()) if isinstance(call, LedgerCall)]
        if len(calls) != 1 or calls[0].answered != (record.kind is RecordKind.ANSWER):
            return False
        return not (calls[0].response_id and any(map(identifying, own_ids(record))))


def _clue(by: By, index: dict[str, list[LedgerItem]], ids: Iterable[str]) -> _Clue:
    known = [ident for ident in ids if len(index.get(ident, ())) in range(1, FITS_MAX + 1)]
    items = {id(item): item for ident in known for item in index[ident]}
    return _Clue(by, tuple(items.values()), any(identifying(ident) for ident in known))


def pair_by_ids(calls: Sequence[LedgerCall], refusals: Sequence[LedgerRefusal], records: Sequence[DispatchRecord], window_ms: int = WINDOW_MS) -> ById:
    index = _Index(calls, refusals, records)
    result = ById()
    claims: dict[int, list[Pair]] = {}
    for record in records:
        clues = index.clues(record)
        pair, several = _chosen(record, clues, window_ms)
        if pair is not None:
            claims.setdefault(id(pair.item), []).append(pair)
            continue
        if several:
            result.contested[id(record)] = several
        result.left.append(record)
    for same in claims.values():
        _settle(same, result)
    return result


def _chosen(record: DispatchRecord, clues: Sequence[_Clue], window_ms: int) -> tuple[Pair | None, list[LedgerItem]]:
    """The pair, or what fits equally well."""
    if not clues:
        return None, []
    first = clues[0]
    fitting = list(first.items)
    if len(fitting) == 1 and first.proves:
        return Pair(item=fitting[0], record=record, by=first.by), []
    proves = first.proves
    for clue in clues[1:]:
        both = [item for item in fitting if item in clue.items]
        if both:
            fitting, proves = both, proves or clue.proves
    calls = [item for item in fitting if isinstance(item, LedgerCall)]
    for narrower in (
        [call for call in calls if in_session(call, record) and call.session and record.session_ids],
        [call for call in calls if in_session(call, record) and in_time(call, record, window_ms)],
        [call for call in calls if in_time(call, record, window_ms) and same_usage(call, record)],
    ):
        if len(fitting) > 1 and narrower:
            fitting = [item for item in fitting if item in narrower] or fitting
    if len(fitting) != 1:
        return None, fitting
    item = fitting[0]
    agrees = isinstance(item, LedgerCall) and ((moments(record) and in_time(item, record, window_ms)) or same_usage(item, record))
    return (Pair(item=item, record=record, by=first.by), []) if proves or agrees else (None, [])


def _settle(same: Sequence[Pair], result: ById) -> None:
    """Of the rows that say they are one call, the strongest; answers beside it only pass as such where they could not be another's."""
    ranked = sorted(same, key=lambda pair: (STRENGTH.index(pair.record.kind), list(By).index(pair.by), not _agrees(pair), pair.record.order))
    first, *rest = ranked
    result.pairs.append(first)
    for pair in rest:
        if pair.record.kind is not RecordKind.ANSWER:
            result.besides.setdefault(id(pair.item), []).append(pair.record)
        elif identifying(pair.record.response_id or " ".join((*pair.record.item_ids, *pair.record.tool_call_ids, *pair.record.request_ids))):
            result.twice.append(pair)
        else:
            result.left.append(pair.record)


def _agrees(pair: Pair) -> bool:
    return isinstance(pair.item, LedgerCall) and same_usage(pair.item, pair.record)
