"""A sample of tests/fixtures/dispatch reconciled with the ledger that a gateway in its server's place would have written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.ledger.reading import LedgerReader
from gateway.reconcile.finding import find_records
from gateway.reconcile.known_ids import read_known
from gateway.reconcile.ledger_side import LedgerSide, read_ledger
from gateway.reconcile.match import Match
from gateway.reconcile.matching import match
from gateway.reconcile.record import DispatchRecord
from gateway.reconcile.report_lines import lines
from tests.support.dispatch_ledger import ledger_of, server_log
from tests.support.dispatch_samples import SAMPLES, records


@dataclass(frozen=True, slots=True)
class Sample:
    ledger: Path
    rows: tuple[DispatchRecord, ...]
    calls: dict[str, int]
    """Call id -> number of the call in the server's log."""

    def matched(self, rows: Sequence[DispatchRecord] | None = None, *, run: str = "r", as_of: int = 0) -> list[Match]:
        with LedgerReader(self.ledger) as reader:
            return match(self.side(run, as_of), self.rows if rows is None else rows, lambda wanted: read_known(reader, wanted))

    def side(self, run: str = "r", as_of: int = 0) -> LedgerSide:
        with LedgerReader(self.ledger) as reader:
            return read_ledger(reader, "c", run, as_of=as_of)

    def findings(self, rows: Sequence[DispatchRecord]) -> list[Match]:
        return [each for each in self.matched(rows) if not each.explained]


def sample(name: str, folder: Path, ledger: Path | None = None) -> Sample:
    """`ledger`: one that holds the sample's run already."""
    folder.mkdir(parents=True, exist_ok=True)
    log = SAMPLES / name / "mock-requests.jsonl"
    made = ledger or ledger_of(log, folder / "ledger.db")
    return Sample(made, find_records(records(name, folder)).read().records, numbers(name))


def numbers(name: str) -> dict[str, int]:
    return {line["resp"]["request_id"]: line["gen"] for line in server_log(SAMPLES / name / "mock-requests.jsonl") if line.get("gen")}


def said(matches: Sequence[Match], calls: dict[str, int]) -> list[str]:
    """`NUMBER class [matched by]`, one a row; a row of no call has no number."""
    told = []
    for each in matches:
        place = " ".join(str(calls[item.call_id]) for item in each.items) or "-"
        told.append(f"{place} {each.name}{f' {each.by}' if each.by else ''}")
    return told


def example(name: str, folder: Path) -> str:
    """As docs/reconciliation.md shows it: calls by their number, rows by their place."""
    made = sample(name, folder)
    heads = ("CLASS", "MATCHED BY", "CALL", "ROW", "LEDGER", "RECORD", "WHAT")
    table = [heads]
    for each, line in zip(matches := made.matched(), lines(matches), strict=True):
        call = ", ".join(str(made.calls[item.call_id]) for item in each.items)
        row = ", ".join(record.source.rpartition(":" if ".jsonl:" in record.source else "#")[2] for record in each.records)
        table.append((line.name, line.by, call, row, _sum(line.ledger_input, line.ledger_output), _sum(line.record_input, line.record_output), line.what))
    widths = [max(len(cells[place]) for cells in table) for place in range(len(heads))]
    return "\n".join("  ".join(f"{cell or '-':<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in table)


def _sum(prompt: int | None, output: int | None) -> str:
    return "" if prompt is None else f"{prompt} + {output}"
