"""Why a call has no row, and a row no call: each gets a named reason, from what the ledger itself shows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.accounting.usage import Outcome
from gateway.reconcile.classes import Class
from gateway.reconcile.comparing import ENDED_BY, MEASURED, ending_words, refusal_words
from gateway.reconcile.fits import WINDOW_MS, moments
from gateway.reconcile.id_forms import identifying
from gateway.reconcile.known_ids import KnownIds, Place
from gateway.reconcile.ledger_side import LedgerCall, LedgerRefusal, LedgerSide
from gateway.reconcile.match import Match, Pair
from gateway.reconcile.record import DispatchRecord, RecordKind

NO_CONVERSATION: Final = ("embeddings", "embedding", "embed", "rerank")
"""Ends of the names of dialects in which agents keep no record."""
TRIED_AGAIN: Final = frozenset({Outcome.ENGINE_REFUSED, Outcome.ENGINE_ERROR, Outcome.ENGINE_DIED, Outcome.ENGINE_CLOSED, Outcome.ENGINE_TIMEOUT, Outcome.LOST})
MANY_SESSIONS_A_FILE: Final = frozenset({"opencode", "inspect", "gateway-dispatch"})
"""Agents of which one file holds sessions that have nothing to do with each other."""


@dataclass(slots=True)
class Context:
    """What the pairs tell of the rest."""

    side: LedgerSide
    last_of_conversation: dict[tuple[str, str], int] = field(default_factory=dict)
    """(run, digest of a conversation) -> number of the last call that sent it."""
    last_retry: dict[tuple[str, str], int] = field(default_factory=dict)
    """The same of calls whose agent said that it tries again."""
    shapes: dict[str, set[tuple[str, bool, bool]]] = field(default_factory=dict)
    """Model, tools and streaming, of the calls that rows tell of, by run."""
    models: dict[str, set[str]] = field(default_factory=dict)
    """What calls and refusals that rows tell of asked for, by run."""
    measured: set[str] = field(default_factory=set)
    """Runs of which some row holds more than its agent's own estimate."""
    last_told: dict[str, int] = field(default_factory=dict)
    """Number of the last call of a run that a row tells of."""
    homes: set[str] = field(default_factory=set)
    """Files, or sessions of files that hold several, of which some row tells of a call that is looked at."""
    sessions: set[str] = field(default_factory=set)
    """What agents sent along with the calls that are looked at."""

    def at_home(self, record: DispatchRecord) -> bool:
        return home(record) in self.homes or not self.sessions.isdisjoint(record.session_ids)


def context(side: LedgerSide, pairs: Sequence[Pair], undecided: Sequence[Match] = ()) -> Context:
    """An undecided call is told of by some row, whichever it is."""
    found = Context(side)
    for call in side.calls:
        found.sessions |= call.session
    for each in undecided:
        found.homes |= {home(record) for record in each.records}
        for item in each.items:
            if isinstance(item, LedgerCall):
                _told(found, item)
                found.measured |= set() if all(record.usage_is_own for record in each.records) else {item.run_name}
    for call in side.calls:
        if call.conversation:
            found.last_of_conversation[call.run_name, call.conversation] = call.number
            if call.retry:
                found.last_retry[call.run_name, call.conversation] = call.number
    for pair in pairs:
        found.homes.add(home(pair.record))
        found.models.setdefault(pair.item.run_name, set()).add(pair.item.model)
        if isinstance(pair.item, LedgerCall):
            _told(found, pair.item)
            found.measured |= set() if pair.record.usage_is_own else {pair.item.run_name}
    return found


def _told(known: Context, call: LedgerCall) -> None:
    known.shapes.setdefault(call.run_name, set()).add((call.model, call.tools, call.stream))
    known.last_told[call.run_name] = max(call.number, known.last_told.get(call.run_name, 0))


def home(record: DispatchRecord) -> str:
    """What rows have in common that stand or fall together: their file, or their session in it."""
    file = record.source.rpartition("#" if "#" in record.source else ":")[0] or record.source
    return f"{file}#{record.session}" if record.agent in MANY_SESSIONS_A_FILE else file


def without_row(call: LedgerCall, known: Context) -> Match:
    if call.status == "reserved":
        return _call(call, Class.OPEN, "not settled yet")
    sent = (call.run_name, call.conversation)
    again = known.last_of_conversation.get(sent, 0) > call.number
    if not call.answered:
        if again and call.outcome in TRIED_AGAIN:
            return _call(call, Class.RETRIED_ATTEMPT, f"{ending_words(call)}; the same conversation was sent again")
        return _call(call, ENDED_BY.get(call.outcome, Class.ENGINE_CUT), ending_words(call))
    if beside := _beside(call, known):
        return _call(call, Class.SIDE_CALL, beside)
    if again and (call.empty or known.last_retry.get(sent, 0) > call.number):  # else it may as well be a second sample of the same
        return _call(call, Class.RETRIED_ATTEMPT, "its answer was empty or not taken, and the same conversation was sent again")
    if call.source not in MEASURED:
        return _call(call, Class.NO_USAGE, f"the engine reported none (source {call.source})")
    facts = known.side.runs.get(call.run_name)
    if facts is not None and facts.killed and call.number > known.last_told.get(call.run_name, 0):
        said = f"exit {facts.exit}" if facts.exit is not None else f"turn ended: {facts.turn_end}"
        return _call(call, Class.AGENT_KILLED, f"after the record's last row; declared of the run: {said}")
    return _call(call, Class.RECORD_LOST, "a whole answer that no row tells of")


def _beside(call: LedgerCall, known: Context) -> str:
    if call.dialect.endswith(NO_CONVERSATION):
        return f"{call.dialect} is no conversation"
    shapes = known.shapes.get(call.run_name, set())
    models = known.models.get(call.run_name, set()) - {""}
    if call.tools or not (shapes or models):
        return ""
    if shapes and all(tools for _, tools, _ in shapes):
        return "it offered no tools, where the calls that are in the record do"
    if models and call.model not in models:
        return f"it asked for {call.model}, which no call in the record does"
    if shapes and call.run_name not in known.measured and call.stream not in {stream for _, _, stream in shapes}:
        return "streaming or not, it is unlike the calls that are in the record"
    return ""


def _call(call: LedgerCall, name: Class, why: str) -> Match:
    return Match(name=name, items=(call,), why=why)


def refused_alone(refusal: LedgerRefusal) -> Match:
    return Match(name=Class.REFUSED, items=(refusal,), why=refusal_words(refusal))


def without_call(record: DispatchRecord, known: Context, ids: KnownIds) -> Match:
    if record.kind is RecordKind.PLACEHOLDER:
        return _row(record, Class.PLACEHOLDER, "made by the agent itself")
    if record.kind is RecordKind.LOCAL_ERROR:
        return _row(record, Class.LOCAL_ERROR_ROW, record.message or "an error on the agent's side")
    if places := ids.places_of(record, known.side.campaign, known.side.run):
        return _elsewhere(record, places, known)
    if record.kind is RecordKind.ERROR:
        return _error(record, known, ids)
    at_home = known.at_home(record)
    if record.kind is RecordKind.ABORTED and (at_home or not ids.of_engines_form(record)):
        return _row(record, Class.ABORTED_PARTIAL, "given up by the agent; the ledger has no such call, or none with its id")
    if not _has_id(record) and (alike := ids.alike_elsewhere(record, known.side.campaign, known.side.run)):
        named = ", ".join(dict.fromkeys(place.run_name for place in alike))
        return _row(record, Class.OTHER_RUN if at_home else Class.OTHER_SESSION, f"by its numbers and time of run {named}")
    if not at_home and not _in_its_time(record, known.side):
        return _row(record, Class.OTHER_SESSION, "no row of it is in the ledger, and it is of another time")
    if _before_all(record, known.side):
        return _row(record, Class.OTHER_SESSION, "of before the run was opened: a conversation that was resumed carries its rows along")
    if ident := ids.of_engines_form(record):
        return _row(record, Class.FOREIGN, f"{ident} looks like the ids that engines gave here, and no call of the whole ledger has it")
    strange = "an id that is known nowhere, and not of a form that was seen here"
    return _row(record, Class.UNIDENTIFIED, strange if _has_id(record) else "no id, and no call fits")


def _elsewhere(record: DispatchRecord, places: Sequence[Place], known: Context) -> Match:
    side = known.side
    here = [place for place in places if place.campaign == side.campaign and side.run in ("", place.run)]
    if here and side.as_of and all(place.number > side.as_of for place in here):
        return _row(record, Class.LATER, f"call {here[0].call_id}, entry {here[0].number}")
    if here:
        return _row(record, Class.UNIDENTIFIED, f"its id is that of call {here[0].call_id}, but neither time nor numbers fit")
    named = ", ".join(dict.fromkeys(place.run_name for place in places))
    if known.at_home(record):
        return _row(record, Class.OTHER_RUN, f"of run {named}, in a record that otherwise belongs here")
    return _row(record, Class.OTHER_SESSION, f"of run {named}")


def _error(record: DispatchRecord, known: Context, ids: KnownIds) -> Match:
    if ids.of_our_form(record):
        summed = sum(refusal.count for refusal in known.side.refusals if not refusal.call_id)
        return _row(record, Class.REFUSED, f"answered by the gateway without an entry of its own ({summed} refusals are summed in this run)")
    status = f"status {record.status}; " if record.status else ""
    return _row(record, Class.LOCAL_ERROR_ROW, f"{status}no refusal or failed call of the ledger fits")


def _before_all(record: DispatchRecord, side: LedgerSide) -> bool:
    return max(moments(record), default=_first(side)) < _first(side)


def _first(side: LedgerSide) -> int:
    return min((facts.opened_ms for facts in side.runs.values()), default=0) - WINDOW_MS


def _in_its_time(record: DispatchRecord, side: LedgerSide) -> bool:
    """A row without a time may be of any."""
    times = moments(record)
    if not times:
        return True
    ends = [facts.closing_ms for facts in side.runs.values()]
    last = None if None in ends else max((end for end in ends if end is not None), default=None)
    return any(moment >= _first(side) and (last is None or moment <= last + WINDOW_MS) for moment in times)


def _has_id(record: DispatchRecord) -> bool:
    """That can name its answer."""
    return any(map(identifying, (record.response_id, *record.item_ids, *record.tool_call_ids)))


def _row(record: DispatchRecord, name: Class, why: str) -> Match:
    return Match(name=name, records=(record,), why=why)
