"""A reconciliation as lines and sentences that every form of the report shows: terminal, Markdown, page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.reconcile.classes import MEANINGS, Class
from gateway.reconcile.ledger_side import LedgerCall
from gateway.reconcile.match import Match
from gateway.reconcile.reconciling import Reconciliation
from gateway.reconcile.record import DispatchRecord

NAMED_MAX = 4
"""Calls or rows of one line that are named; the rest is a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLine:
    name: Class
    explained: bool
    by: str
    run: str
    call: str
    record: str
    ledger_input: int | None = None
    ledger_output: int | None = None
    record_input: int | None = None
    record_output: int | None = None
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassLine:
    name: Class
    count: int
    explained: bool
    says: str
    do: str


def lines(matches: Sequence[Match]) -> list[ReportLine]:
    return [_line(each) for each in matches]


def _line(each: Match) -> ReportLine:
    call = each.items[0] if len(each.items) == 1 else None
    usage = call.usage if isinstance(call, LedgerCall) else None
    row = each.records[0].usage if each.records else None
    return ReportLine(
        name=each.name,
        explained=each.explained,
        by=each.by.value if each.by else "",
        run=each.items[0].run if each.items else "",
        call=_named([item.call_id or "(summed)" for item in each.items]),
        record=_named([_short(record) for record in each.records]),
        ledger_input=usage.input_tokens if usage else None,
        ledger_output=usage.output_tokens if usage else None,
        record_input=row.input_tokens if row else None,
        record_output=row.output_tokens if row else None,
        what="; ".join([*(str(one) for one in each.differences), *([each.why] if each.why else [])]),
    )


def _named(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _short(record: DispatchRecord) -> str:
    """The file's own name is enough for people: the document bears the whole path."""
    return record.source.rpartition("/")[2]


def class_lines(done: Reconciliation) -> list[ClassLine]:
    counted = Counter(each.name for each in done.matches)
    return [
        ClassLine(name=name, count=counted[name], explained=meaning.explained, says=meaning.says, do=meaning.do)
        for name, meaning in MEANINGS.items()
        if counted[name]
    ]


def title(done: Reconciliation) -> str:
    side = done.side
    return f"Reconciliation of {f'run {side.campaign}/{side.run}' if side.run else f'campaign {side.campaign}'}"


def verdict(done: Reconciliation) -> str:
    unexplained = len(done.findings)
    wrong = [each for each in done.witnesses if not each.explained]
    if done.clean:
        return "Nothing is unexplained."
    alarms = sum(each.name is Class.FOREIGN for each in done.findings)
    parts = [f"{unexplained} unexplained"] if unexplained else []
    parts += [f"{alarms} of them foreign: an answer that no call of this ledger gave"] if alarms else []
    parts += [f"the engine's own counters contradict the ledger ({', '.join(each.what for each in wrong)})"] if wrong else []
    return "; ".join(parts).capitalize() + "."


def scope(done: Reconciliation) -> str:
    side, rows = done.side, done.rows
    at = f"as of entry {side.as_of or side.last_number}"
    refusals = sum(refusal.count for refusal in side.refusals)
    copies = f" ({rows.copies} copies counted once)" if rows.copies else ""
    return (
        f"Ledger: {len(side.calls)} calls, {refusals} refusals in {len(side.runs)} {'run' if len(side.runs) == 1 else 'runs'}, {at}. "
        f"Records: {len(rows.records)} rows{copies} in {done.files} {'file' if done.files == 1 else 'files'} of {', '.join(done.agents)}."
    )
