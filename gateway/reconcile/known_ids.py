"""All ids that the whole ledger has seen, asked of once: where the wanted ones stand, and what ids look like here.

One pass over the ledger, whatever its size; what is kept grows with what is asked, not with the ledger.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from gateway.ledger.reading import LedgerReader
from gateway.reconcile.fits import WINDOW_MS, moments
from gateway.reconcile.id_forms import Form, form_of, identifying
from gateway.reconcile.ledger_side import Content, Progress, ids_in, pages
from gateway.reconcile.record import DispatchRecord

FORMS_MAX: Final = 4_096
PLACES_MAX: Final = 8
"""Of one id: one that stands in more calls names none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    campaign: str
    run: str
    call_id: str = ""
    """Empty: a session's id, of one call or many."""
    number: int = 0

    @property
    def run_name(self) -> str:
        return f"{self.campaign}/{self.run}"


@dataclass(slots=True, kw_only=True)
class KnownIds:
    """Answers and requests are apart: a request's id is the gateway's own, an answer's is the engine's."""

    places: dict[str, list[Place]] = field(default_factory=dict)
    answer_forms: set[Form] = field(default_factory=set)
    part_forms: set[Form] = field(default_factory=set)
    """Of output items and tool calls."""
    request_forms: set[Form] = field(default_factory=set)
    by_numbers: dict[str, list[Place]] = field(default_factory=dict)
    """Of rows without an id, by their source: calls with the same numbers at the same time, anywhere."""

    def of_engines_form(self, record: DispatchRecord) -> str:
        """The first id of the row that looks as those which engines gave here, and says enough to name one answer; empty where there is none."""
        if record.response_id:
            return record.response_id if _fits(record.response_id, self.answer_forms) else ""
        return next((ident for ident in (*record.item_ids, *record.tool_call_ids) if _fits(ident, self.part_forms)), "")

    def of_our_form(self, record: DispatchRecord) -> str:
        return next((ident for ident in record.request_ids if _fits(ident, self.request_forms)), "")

    def places_of(self, record: DispatchRecord, campaign: str, run: str) -> list[Place]:
        """Where its ids stand; one that can collide by chance says nothing. A session's id only where the row bears no other, and only of other runs."""
        own = [ident for ident in own_ids(record) if identifying(ident)]
        if own:
            return next((places for ident in own if (places := self.places.get(ident))), [])
        known = [place for ident in record.session_ids if identifying(ident) for place in self.places.get(ident, ())]
        return [] if any(place.campaign == campaign and run in ("", place.run) for place in known) else known

    def alike_elsewhere(self, record: DispatchRecord, campaign: str, run: str) -> list[Place]:
        """Calls of other runs with its numbers, at its time."""
        return [place for place in self.by_numbers.get(record.source, ()) if place.campaign != campaign or run not in ("", place.run)]

    def learn(self, kind: set[Form], ident: str) -> None:
        if len(kind) < FORMS_MAX and identifying(ident):
            kind.add(form_of(ident))

    def found(self, ident: str, place: Place) -> None:
        _add(self.places.setdefault(ident, []), place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked of the whole ledger."""

    ids: frozenset[str] = frozenset()
    rows: tuple[DispatchRecord, ...] = ()
    """Rows that no id can find."""


def wanted(records: Iterable[DispatchRecord]) -> Wanted:
    rows = list(records)
    ids = frozenset(ident for row in rows for ident in (*own_ids(row), *row.session_ids))
    return Wanted(ids=ids, rows=tuple(row for row in rows if row.usage.output_tokens and not any(map(identifying, own_ids(row)))))


class _Numbers:
    """Rows by their numbers, in time."""

    def __init__(self, rows: Iterable[DispatchRecord]) -> None:
        self._rows: dict[tuple[int | None, int | None], list[tuple[int, str]]] = {}
        for row in rows:
            if times := moments(row):
                self._rows.setdefault((row.usage.input_tokens, row.usage.output_tokens), []).append((max(times), row.source))
        for same in self._rows.values():
            same.sort()

    def at(self, usage: Mapping[str, object], ended_ms: int) -> list[str]:
        """Sources of the rows that could tell of a call that ended then."""
        same = self._rows.get((cast("int | None", usage.get("input_tokens")), cast("int | None", usage.get("output_tokens"))), [])
        first = bisect_left(same, (ended_ms - WINDOW_MS, ""))
        return [source for _, source in same[first : bisect_left(same, (ended_ms + WINDOW_MS, ""))]]


def own_ids(record: DispatchRecord) -> list[str]:
    """What names this one answer or request."""
    return [ident for ident in (record.response_id, *record.item_ids, *record.tool_call_ids, *record.request_ids) if ident]


def _add(places: list[Place], place: Place) -> None:
    if len(places) < PLACES_MAX and place not in places:
        places.append(place)


def _fits(ident: str, forms: Collection[Form]) -> bool:
    return identifying(ident) and form_of(ident) in forms


def read_known(reader: LedgerReader, wanted: Wanted, *, progress: Progress | None = None) -> KnownIds:
    known, numbers = KnownIds(), _Numbers(wanted.rows)
    for number, content in pages(reader, "kind IN ('reserve', 'settle', 'refuse')"):
        call_id = cast(str, content["call"])
        known.learn(known.request_forms, call_id)
        campaign, run = cast(str, content["campaign"]), cast(str, content["run"])
        details = content.get("details")
        ids = [call_id]
        if content["kind"] == "settle" and isinstance(details, Mapping):
            ids += _answers(known, details)
            place = Place(campaign=campaign, run=run)
            for source in numbers.at(cast("Mapping[str, object]", content["usage"]), cast(int, content["at_ms"])):
                _add(known.by_numbers.setdefault(source, []), place)
        elif isinstance(details, Mapping) and isinstance(session := details.get("session"), Mapping):
            for ident in wanted.ids.intersection(value for value in session.values() if isinstance(value, str)):
                known.found(ident, Place(campaign=campaign, run=run))
        for ident in wanted.ids.intersection(ids):
            known.found(ident, Place(campaign=campaign, run=run, call_id=call_id, number=number))
        if progress and number % 1_000 == 0:
            progress("entries of the whole ledger", number)
    return known


def _answers(known: KnownIds, details: Content) -> list[str]:
    response = details.get("response_id")
    parts = [*ids_in(details, "item_ids"), *ids_in(details, "tool_call_ids")]
    if isinstance(response, str):
        known.learn(known.answer_forms, response)
    for ident in parts:
        known.learn(known.part_forms, ident)
    return [response, *parts] if isinstance(response, str) else parts
