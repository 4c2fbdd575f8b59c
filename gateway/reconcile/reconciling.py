"""One reconciliation from end to end: the ledger as it stood, the records under some paths, what they come to, as one document.

The document holds no time of its own making and no order but the ledger's: the same ledger and records give the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.ledger.reading import LedgerReader
from gateway.reconcile.classes import MEANINGS, Class
from gateway.reconcile.comparing import FIELDS, MEASURED
from gateway.reconcile.finding import Found, Rows
from gateway.reconcile.fits import WINDOW_MS, session_of
from gateway.reconcile.known_ids import read_known
from gateway.reconcile.ledger_side import LedgerCall, LedgerRefusal, LedgerSide, Progress, read_ledger
from gateway.reconcile.match import LedgerItem, Match
from gateway.reconcile.matching import match
from gateway.reconcile.record import DispatchRecord, RecordKind
from gateway.reconcile.witnesses import Counters, Witness, witnesses

FORM = "gateway-reconciliation-1"
Document = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    side: LedgerSide
    rows: Rows
    agents: tuple[str, ...]
    files: int
    matches: tuple[Match, ...]
    """Those of the ledger in its order, then rows of no call."""
    witnesses: tuple[Witness, ...] = ()

    @property
    def findings(self) -> list[Match]:
        """What nothing explains."""
        return [each for each in self.matches if not each.explained]

    @property
    def clean(self) -> bool:
        return not self.findings and all(each.explained for each in self.witnesses)


def reconcile(
    reader: LedgerReader,
    found: Found,
    campaign: str,
    run: str = "",
    *,
    as_of: int = 0,
    window_ms: int = WINDOW_MS,
    metrics: tuple[Counters, Counters] | None = None,
    progress: Progress | None = None,
) -> Reconciliation:
    """Raises NotFound for a run that is not there, RecordProblem for records that can't be read."""
    side = read_ledger(reader, campaign, run, as_of=as_of, progress=progress)
    rows = found.read((lambda done, _: progress("files of records", done)) if progress else None)
    matches = match(side, rows.records, lambda wanted: read_known(reader, wanted, progress=progress), window_ms=window_ms)
    told = [record for each in matches if each.items for record in each.records]
    return Reconciliation(
        side=side,
        rows=rows,
        agents=found.agents(),
        files=len(found.files),
        matches=tuple(matches),
        witnesses=tuple(witnesses(*metrics, side.calls, told)) if metrics else (),
    )


def document(done: Reconciliation, *, within: str = "") -> Document:
    """`within`: a folder that is left out of the records' names."""
    side = done.side
    begin = f"{within}/" if within else ""
    counted = Counter(each.name for each in done.matches)
    return {
        "form": FORM,
        "campaign": side.campaign,
        **({"run": side.run} if side.run else {}),
        "as_of": side.as_of or side.last_number,
        "clean": done.clean,
        "agents": list(done.agents),
        "files": done.files,
        "calls": len(side.calls),
        "refusals": sum(refusal.count for refusal in side.refusals),
        "rows": len(done.rows.records),
        "copies": done.rows.copies,
        "unexplained": len(done.findings),
        "classes": {name.value: {"count": counted[name], "explained": MEANINGS[name].explained} for name in Class if counted[name]},
        "matched_by": dict(sorted(Counter(each.by.value for each in done.matches if each.by is not None).items())),
        "usage": usage(done.matches),
        "runs": runs(done),
        "sessions": sessions(done),
        "witnesses": [_witness(each) for each in done.witnesses],
        "matches": [shown(each, begin) for each in done.matches],
        "skipped": [{"source": each.source.removeprefix(begin), "why": each.why} for each in done.rows.skipped],
    }


def usage(matches: Sequence[Match]) -> Document:
    """Sums over the pairs whose numbers were held against each other: what both know."""
    pairs = [(call, each.records[0]) for each in matches if each.name in (Class.EQUAL, Class.DIFFERS) and each.records and (call := each.call)]
    sums: Document = {}
    for name in FIELDS:
        both = [
            (ours, theirs)
            for call, row in pairs
            if call.source in MEASURED
            if (ours := getattr(call.usage, name)) is not None and (theirs := getattr(row.usage, name)) is not None
        ]
        sums[name] = {"pairs": len(both), "ledger": sum(ours for ours, _ in both), "record": sum(theirs for _, theirs in both)}
    return sums


def runs(done: Reconciliation) -> list[Document]:
    found: dict[str, Document] = {}
    for name, facts in done.side.runs.items():
        label = {"label": facts.label} if facts.label else {}
        found[name] = {"run": facts.run, **label, "calls": 0, "refusals": 0, "matched": 0, "unexplained": 0}
    for each in done.matches:
        for item in each.items[:1]:
            row = found[item.run_name]
            row["matched"] = _plus(row["matched"], bool(each.records) and each.by is not None)
            row["unexplained"] = _plus(row["unexplained"], not each.explained)
    for call in done.side.calls:
        found[call.run_name]["calls"] = _plus(found[call.run_name]["calls"], 1)
    for refusal in done.side.refusals:
        found[refusal.run_name]["refusals"] = _plus(found[refusal.run_name]["refusals"], refusal.count)
    return list(found.values())


def _plus(value: object, more: int) -> int:
    assert isinstance(value, int)
    return value + more


def sessions(done: Reconciliation) -> list[Document]:
    """Which of the agents' sessions belongs to which run: found by what was matched, not by names."""
    rows = Counter(session_of(record) for record in done.rows.records)
    homes: dict[tuple[str, str], Counter[str]] = {}
    for each in done.matches:
        if each.by is not None and each.items:
            for record in each.records:
                homes.setdefault(session_of(record), Counter())[each.items[0].run] += 1
    return [
        {"agent": agent, "session": session, "rows": rows[agent, session], "runs": dict(sorted(homes.get((agent, session), Counter()).items()))}
        for agent, session in sorted(rows)
    ]


def shown(each: Match, begin: str = "") -> Document:
    """One row of the report."""
    made: Document = {"class": each.name.value, "explained": each.explained}
    if each.by is not None:
        made["by"] = each.by.value
    if each.items:
        made["run"] = each.items[0].run
        made["ledger"] = [_item(item) for item in each.items]
    if each.records:
        made["records"] = [_record(record, begin) for record in each.records]
    if each.differences:
        made["differences"] = [{"field": one.field, "ledger": one.ledger, "record": one.record} for one in each.differences]
    if each.why:
        made["why"] = each.why
    return made


def _item(item: LedgerItem) -> Document:
    if isinstance(item, LedgerRefusal):
        return _present(refused=item.call_id, number=item.number, at_ms=item.at_ms, code=item.code, limit=item.limit, count=item.count if item.count > 1 else 0)
    return {**_call(item), **_numbers(item.usage)}


def _call(call: LedgerCall) -> Document:
    return _present(
        call=call.call_id,
        number=call.number,
        lane=call.lane,
        model=call.model,
        model_reported=call.model_reported,
        dialect=call.dialect,
        admitted_ms=call.admitted_ms,
        ended_ms=call.ended_ms,
        outcome=call.outcome,
        source=call.source,
        response_id=call.response_id,
    )


def _record(record: DispatchRecord, begin: str) -> Document:
    told = _present(
        agent=record.agent,
        source=record.source.removeprefix(begin),
        kind="" if record.kind is RecordKind.ANSWER else record.kind.value,
        session=record.session,
        at_ms=record.at_ms,
        model=record.model,
        response_id=record.response_id,
        status=record.status,
        estimate=record.usage_is_own,
    )
    return {**told, **_numbers(record.usage)}


def _numbers(of: object) -> Document:
    """What is unknown is absent."""
    return {name: value for name in FIELDS if (value := getattr(of, name)) is not None}


def _present(**values: object) -> Document:
    return {name: value for name, value in values.items() if value}


def _witness(each: Witness) -> Mapping[str, object]:
    told: Document = {"engine": each.engine, "what": each.what, "counted": each.counted, "ledger": each.ledger, "unmeasured_calls": each.unmeasured}
    return {**told, **({} if each.records is None else {"records": each.records}), "explained": each.explained, "says": each.says}
