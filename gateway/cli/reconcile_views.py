"""A reconciliation for people at a terminal or behind a pipe."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from gateway.cli.screen import Column, Line, Table, View
from gateway.cli.words import Kind
from gateway.reconcile.reconciling import Reconciliation, runs, sessions
from gateway.reconcile.report_lines import ReportLine, class_lines, lines, scope, title, verdict

ROWS_SHOWN: Final = 100
"""Of all rows: where there are more, only what is unexplained is listed."""
FINDINGS_SHOWN: Final = 200

CLASSES: Final = (Column("name", "CLASS"), Column("count", "ROWS", Kind.NUMBER), Column("explained", "EXPLAINED"), Column("says", "MEANING"))
ROWS: Final = (
    Column("name", "CLASS"),
    Column("by", "MATCHED BY"),
    Column("call", "CALL"),
    Column("record", "ROW"),
    Column("ledger_input", "LEDGER\nINPUT", Kind.OPTIONAL_NUMBER),
    Column("ledger_output", "LEDGER\nOUTPUT", Kind.OPTIONAL_NUMBER),
    Column("record_input", "RECORD\nINPUT", Kind.OPTIONAL_NUMBER),
    Column("record_output", "RECORD\nOUTPUT", Kind.OPTIONAL_NUMBER),
    Column("what", "WHAT"),
)
NARROW: Final = (Column("name", "CLASS"), Column("call", "CALL"), Column("told", "ROW, AND WHAT OF IT"))
"""For a terminal, which may be 80 letters wide."""
RUNS: Final = (
    Column("run", "RUN"),
    Column("calls", "CALLS", Kind.NUMBER),
    Column("refusals", "REFUSALS", Kind.NUMBER),
    Column("matched", "MATCHED", Kind.NUMBER),
    Column("unexplained", "UNEXPLAINED", Kind.NUMBER),
)
SESSIONS: Final = (Column("agent", "AGENT"), Column("session", "SESSION"), Column("rows", "ROWS", Kind.NUMBER), Column("runs", "MATCHED WITH RUNS"))
WITNESSES: Final = (
    Column("engine", "ENGINE"),
    Column("what", "TOKENS"),
    Column("counted", "ENGINE\nCOUNTED", Kind.NUMBER),
    Column("ledger", "LEDGER", Kind.NUMBER),
    Column("records", "RECORDS", Kind.NUMBER),
    Column("says", "SAYS"),
)
SKIPPED: Final = (Column("source", "WHERE"), Column("why", "NOT READ BECAUSE"))


def reconcile_views(done: Reconciliation, *, everything: bool, terminal: bool) -> list[View]:
    views: list[View] = [Line(title(done)), Line(scope(done)), Line()]
    views += [Table(columns=CLASSES, rows=[asdict(each) for each in class_lines(done)], empty="Nothing to hold against each other."), Line()]
    if not done.side.run:
        views += [Table(columns=RUNS, rows=runs(done)), Line(), Table(columns=SESSIONS, rows=sessions(done)), Line()]
    shown = list(done.matches) if everything or len(done.matches) <= ROWS_SHOWN else done.findings[:FINDINGS_SHOWN]
    if shown:
        columns = NARROW if terminal else ROWS
        columns = columns if done.side.run else (columns[0], Column("run", "RUN"), *columns[1:])
        views += [Table(columns=columns, rows=[asdict(each) | {"told": _told(each)} for each in lines(shown)]), Line()]
    if len(shown) < len(done.matches):
        views += [Line(f"{len(done.matches) - len(shown)} rows are not listed; --all lists them, --json and --html hold them."), Line()]
    if done.witnesses:
        rows = [{**{name: getattr(each, name) for name in ("engine", "what", "counted", "ledger", "records")}, "says": each.says} for each in done.witnesses]
        views += [Table(columns=WITNESSES, rows=rows), Line()]
    if done.rows.skipped:
        views += [Table(columns=SKIPPED, rows=[{"source": each.source, "why": each.why} for each in done.rows.skipped[:FINDINGS_SHOWN]]), Line()]
    views += [Line(f"{each.name.value}: {each.do}") for each in class_lines(done) if not each.explained]
    return [*views, Line(verdict(done))]


def _told(line: ReportLine) -> str:
    """By what, which row, both sides' numbers, and what differs or why, in one."""
    numbers = [
        f"{side} {_pair(tokens)}"
        for side, tokens in (("ledger", (line.ledger_input, line.ledger_output)), ("record", (line.record_input, line.record_output)))
        if tokens != (None, None)
    ]
    return "; ".join(part for part in (line.record, f"by {line.by}" if line.by else "", ", ".join(numbers), line.what) if part)


def _pair(tokens: tuple[int | None, int | None]) -> str:
    return " + ".join("?" if each is None else f"{each:,}" for each in tokens)
