"""Calls and refusals of the ledger against the rows of records: who belongs to whom, step by step, and what is left. Pure but for `known`.

Ids first, then exact usage in session, time and order, then order alone where the numbers of rows and calls leave one way; never a guess where two fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gateway.accounting.usage import Outcome
from gateway.reconcile.by_ids import ById, pair_by_ids
from gateway.reconcile.by_order import pair_answers, pair_estimates, pair_failures
from gateway.reconcile.by_usage import pair_by_usage
from gateway.reconcile.classes import Class
from gateway.reconcile.comparing import compared
from gateway.reconcile.fits import WINDOW_MS, Anchors
from gateway.reconcile.known_ids import KnownIds, Wanted, wanted
from gateway.reconcile.ledger_side import LedgerCall, LedgerSide
from gateway.reconcile.leftovers import context, refused_alone, without_call, without_row
from gateway.reconcile.match import LedgerItem, Match, Pair
from gateway.reconcile.record import DispatchRecord, RecordKind

Ask = Callable[[Wanted], KnownIds]
"""Where that stands in the whole ledger. Called at most once, and only where a row is not found by an id in what is looked at."""
OUT_OF_SIGHT = (Outcome.LOST, Outcome.NOT_DELIVERED)
FAILURES = (RecordKind.ERROR, RecordKind.ABORTED, RecordKind.PLACEHOLDER)


def match(side: LedgerSide, records: Sequence[DispatchRecord], known: Ask, *, window_ms: int = WINDOW_MS) -> list[Match]:
    """In the order of the ledger; rows of no call at the end."""
    return _Matching(side, records, known, window_ms).matches()


class _Matching:
    def __init__(self, side: LedgerSide, records: Sequence[DispatchRecord], known: Ask, window_ms: int) -> None:
        self.side = side
        self.window_ms = window_ms
        self.found: ById = pair_by_ids(side.calls, side.refusals, records, window_ms)
        self.pairs = self.found.pairs
        self.left = self.found.left
        self.ids = known(wanted(self.left)) if self.left else KnownIds()
        self.undecided: list[Match] = []

    def matches(self) -> list[Match]:
        self._by_usage()
        self._by_order()
        self._contested()
        told = {id(pair.item) for pair in self.pairs} | {id(item) for each in self.undecided for item in each.items}
        known = context(self.side, self.pairs, self.undecided)
        made = [self._with_more(compared(pair), pair) for pair in self.pairs]
        made += self.undecided
        made += [_second(pair) for pair in self.found.twice]
        made += [without_row(call, known) for call in self.side.calls if id(call) not in told]
        made += [refused_alone(refusal) for refusal in self.side.refusals if id(refusal) not in told]
        made.sort(key=lambda each: each.items[0].number)
        return made + [without_call(record, known, self.ids) for record in self.left]

    def _with_more(self, made: Match, pair: Pair) -> Match:
        more = self.found.besides.get(id(pair.item), [])
        if not more:
            return made
        return Match(name=made.name, items=made.items, records=(*made.records, *more), by=made.by, differences=made.differences, why=made.why)

    def _free(self) -> list[LedgerCall]:
        told = {id(pair.item) for pair in self.pairs}
        return [call for call in self.side.calls if id(call) not in told]

    def _take(self, pairs: Iterable[Pair]) -> None:
        self.pairs += pairs
        told = {id(pair.record) for pair in self.pairs}
        self.left = [record for record in self.left if id(record) not in told]

    def _elsewhere(self, record: DispatchRecord) -> bool:
        return bool(self.ids.places_of(record, self.side.campaign, self.side.run)) and id(record) not in self.found.contested

    def _by_usage(self) -> None:
        rows = [record for record in self.left if record.kind is RecordKind.ANSWER and not record.usage_is_own and not self._elsewhere(record)]
        if not rows:
            return
        pairs, undecided = pair_by_usage(self._free(), rows, Anchors(self.pairs), self.window_ms)
        self._take(pairs)
        for each in undecided:
            self._undecide(each.items, each.records, each.why)

    def _by_order(self) -> None:
        rows = [record for record in self.left if record.kind is RecordKind.ANSWER and not self._elsewhere(record)]
        own = [record for record in rows if record.usage_is_own]
        rest = [record for record in rows if not record.usage_is_own and not self.ids.alike_elsewhere(record, self.side.campaign, self.side.run)]
        spoken_for = {id(item) for each in self.undecided for item in each.items}
        if rest:
            self._take(pair_answers([call for call in self._free() if id(call) not in spoken_for], rest, Anchors(self.pairs), self.window_ms))
        if own:
            pairs, several = pair_estimates(self._free(), own, Anchors(self.pairs), self.window_ms)
            self._take(pairs)
            for items, some in several:
                self._undecide(items, some, f"rows with estimates: {len(some)}, calls that could be meant: {len(items)}")
        self._failures()

    def _failures(self) -> None:
        failed = [record for record in self.left if record.kind in FAILURES and not self._elsewhere(record)]
        if failed:
            told = {id(pair.item) for pair in self.pairs}
            tries: list[LedgerItem] = [call for call in self._free() if not call.answered and call.status != "reserved"]
            tries += [refusal for refusal in self.side.refusals if refusal.call_id and id(refusal) not in told]
            self._take(pair_failures(tries, failed, self.window_ms))
        unheard: list[LedgerItem] = [call for call in self._free() if not call.response_id and (call.status == "reserved" or call.outcome in OUT_OF_SIGHT)]
        answers = [record for record in self.left if record.kind is RecordKind.ANSWER and not record.usage_is_own and not self._elsewhere(record)]
        if unheard and answers:  # an answer of which the gateway lost sight, or does not know the end yet: its id may be any
            self._take(pair_failures(unheard, answers, self.window_ms))

    def _contested(self) -> None:
        """Rows whose id fits several calls that no other row tells of."""
        free = {id(call) for call in self._free()}
        for record in list(self.left):
            items = [item for item in self.found.contested.get(id(record), ()) if id(item) in free]
            if items:
                self._undecide(items, [record], f"{len(items)} calls have its id, and neither time nor numbers decide")

    def _undecide(self, items: Sequence[LedgerItem], records: Sequence[DispatchRecord], why: str) -> None:
        if not items:
            return
        self.undecided.append(Match(name=Class.AMBIGUOUS, items=tuple(items), records=tuple(records), why=why))
        told = {id(record) for record in records}
        self.left = [record for record in self.left if id(record) not in told]


def _second(pair: Pair) -> Match:
    return Match(name=Class.AMBIGUOUS, items=(pair.item,), records=(pair.record,), by=pair.by, why="a second answer that says it is this call")
