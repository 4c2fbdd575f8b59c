"""What a call and its row come to: equal, different, or not to be held against each other, and why. Pure."""

from __future__ import annotations

from typing import Final

from gateway.accounting.usage import Outcome, Source, Usage
from gateway.reconcile.classes import Class
from gateway.reconcile.id_forms import form_of, identifying
from gateway.reconcile.ledger_side import LedgerCall, LedgerRefusal
from gateway.reconcile.match import Difference, Match, Pair
from gateway.reconcile.record import DispatchRecord, RecordKind

FIELDS: Final = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens")
ENDED_BY: Final[dict[str, Class]] = {
    Outcome.CLIENT_CANCELLED: Class.CLIENT_ABORTED,
    Outcome.CAP_CUT: Class.GATEWAY_CUT,
    Outcome.DEADLINE_CUT: Class.GATEWAY_CUT,
    Outcome.CLOSED_CUT: Class.GATEWAY_CUT,
    Outcome.SHUTDOWN_CUT: Class.GATEWAY_CUT,
    Outcome.NOT_DELIVERED: Class.GATEWAY_CUT,
    Outcome.LOST: Class.GATEWAY_CUT,
    Outcome.ENGINE_REFUSED: Class.REFUSED,
    Outcome.ENGINE_ERROR: Class.ENGINE_CUT,
    Outcome.ENGINE_DIED: Class.ENGINE_CUT,
    Outcome.ENGINE_CLOSED: Class.ENGINE_CUT,
    Outcome.ENGINE_TIMEOUT: Class.ENGINE_CUT,
}
"""Whatever is not a whole answer."""
MEASURED: Final = (Source.REPORTED, Source.CORRECTED)


def compared(pair: Pair) -> Match:
    call, record = pair.item, pair.record
    if isinstance(call, LedgerRefusal):
        if record.kind is RecordKind.ANSWER:
            return _said(pair, Class.DIFFERS, "an answer in the record, a refusal in the ledger", Difference(field="ending", ledger=call.code, record="answer"))
        return _said(pair, Class.REFUSED, refusal_words(call))
    if call.status == "reserved":
        return _said(pair, Class.OPEN, "the call is not settled yet")
    if not call.answered:
        return _ended_early(pair, call)
    if record.kind in (RecordKind.ERROR, RecordKind.LOCAL_ERROR):
        words = f"the agent noted an error{f' ({record.status})' if record.status else ''}"
        return _said(pair, Class.DIFFERS, words, Difference(field="ending", ledger=call.outcome, record=record.kind.value))
    if record.kind is RecordKind.ABORTED:
        return _said(pair, Class.ABORTED_PARTIAL, "the agent gave up; the gateway had the whole answer")
    if record.kind is RecordKind.PLACEHOLDER:
        return _said(pair, Class.PLACEHOLDER, "the agent wrote no numbers")
    return _answers(pair, call)


def _answers(pair: Pair, call: LedgerCall) -> Match:
    record = pair.record
    if record.usage_is_own:
        return _said(pair, Class.OWN_ESTIMATE, f"the agent's own estimate: {_numbers(record.usage)}; the ledger has {_numbers(call.usage)}")
    found = [*_identities(call, record), *_models(call, record)]
    if call.source in MEASURED:
        found += usage_differences(call.usage, record.usage)
    elif not found:
        return _said(pair, Class.NO_USAGE, f"the engine reported none; the ledger's is {call.source}, the record has {_numbers(record.usage)}")
    return _said(pair, Class.DIFFERS if found else Class.EQUAL, "" if found else _held(call.usage, record.usage), *found)


def _ended_early(pair: Pair, call: LedgerCall) -> Match:
    if call.outcome == Outcome.ENGINE_REFUSED and pair.record.kind is RecordKind.ANSWER and pair.record.usage.output_tokens:
        return _said(pair, Class.DIFFERS, "", Difference(field="ending", ledger=call.outcome, record="answer"))
    return _said(pair, ENDED_BY.get(call.outcome, Class.ENGINE_CUT), ending_words(call))


def usage_differences(ledger: Usage, record: Usage) -> list[Difference]:
    """Of the numbers that both sides know."""
    both = [(name, getattr(ledger, name), getattr(record, name)) for name in FIELDS]
    return [Difference(field=name, ledger=ours, record=theirs) for name, ours, theirs in both if ours is not None and theirs is not None and ours != theirs]


def same_usage(call: LedgerCall, record: DispatchRecord) -> bool:
    """Known on both sides, and equal wherever it is."""
    known = record.usage.input_tokens is not None and record.usage.output_tokens is not None
    return known and call.source in MEASURED and not record.usage_is_own and not usage_differences(call.usage, record.usage)


def _identities(call: LedgerCall, record: DispatchRecord) -> list[Difference]:
    """An id of the row that is not the call's, though of the same form: one of them was altered."""
    found = []
    if record.response_id and call.response_id and record.response_id != call.response_id and identifying(record.response_id):
        found.append(Difference(field="response_id", ledger=call.response_id, record=record.response_id))
    for name, ours, theirs in (("tool_call_ids", call.tool_call_ids, record.tool_call_ids), ("item_ids", call.item_ids, record.item_ids)):
        forms = {form_of(ident) for ident in ours if identifying(ident)}
        strange = [ident for ident in theirs if ident not in ours and form_of(ident) in forms]
        if strange and len(ours) <= _ALL_ON_RECORD:
            found.append(Difference(field=name, ledger=" ".join(ours), record=" ".join(theirs)))
    return found


_ALL_ON_RECORD: Final = 63
"""A ledger keeps 64 ids of a kind: beyond that, one that is not there proves nothing."""


def _models(call: LedgerCall, record: DispatchRecord) -> list[Difference]:
    """A record names the model that was asked for or the one that answered, at times behind a provider's name."""
    ours = [name for name in (call.model, call.model_reported) if name]
    if not record.model or not ours or any(record.model == name or record.model.endswith(f"/{name}") for name in ours):
        return []
    known = call.model_reported if record.model_is_servers and call.model_reported else call.model
    return [Difference(field="model", ledger=known, record=record.model)]


def _said(pair: Pair, name: Class, why: str, *differences: Difference) -> Match:
    return Match(name=name, items=(pair.item,), records=(pair.record,), by=pair.by, why=why, differences=differences)


def _held(ledger: Usage, record: Usage) -> str:
    both = [name for name in FIELDS if getattr(ledger, name) is not None and getattr(record, name) is not None]
    return "" if both else "the record has no numbers"


def _numbers(usage: Usage) -> str:
    known = [(name.removesuffix("_tokens"), getattr(usage, name)) for name in ("input_tokens", "output_tokens")]
    return ", ".join(f"{value} {name}" for name, value in known if value is not None) or "no numbers"


def refusal_words(refusal: LedgerRefusal) -> str:
    many = f"{refusal.count} times " if refusal.count > 1 else ""
    return f"{many}{refusal.code}{f', {refusal.limit}' if refusal.limit else ''}"


def ending_words(call: LedgerCall) -> str:
    status = f", status {call.http_status}" if call.http_status and call.outcome in (Outcome.ENGINE_REFUSED, Outcome.ENGINE_ERROR) else ""
    return f"{call.outcome}{status}"
