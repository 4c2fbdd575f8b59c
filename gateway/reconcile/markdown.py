"""A reconciliation as Markdown, whole: to put beside the results that it vouches for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gateway.reconcile.reconciling import Reconciliation, runs, sessions
from gateway.reconcile.report_lines import class_lines, lines, scope, title, verdict

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#!~])")


def markdown(done: Reconciliation) -> str:
    parts = [f"# {_text(title(done))}", f"**{_text(verdict(done))}**", _text(scope(done))]
    parts += [
        "## Classes",
        _table(("Class", "Rows", "Explained", "Meaning"), [(each.name, each.count, _yes(each.explained), each.says) for each in class_lines(done)]),
    ]
    if findings := [each for each in lines(done.matches) if not each.explained]:
        rows = [(each.name, each.call, each.record, each.what) for each in findings]
        parts += ["## Unexplained", _table(("Class", "Call", "Row", "What"), rows)]
    if done.witnesses:
        seen = [(each.engine, each.what, each.counted, each.ledger, each.records, _yes(each.explained), each.says) for each in done.witnesses]
        parts += ["## The engine's own counters", _table(("Engine", "Tokens", "Engine", "Ledger", "Records", "Explained", "Says"), seen)]
    if not done.side.run:
        found = [(each["run"], each["calls"], each["refusals"], each["matched"], each["unexplained"]) for each in runs(done)]
        parts += ["## Runs", _table(("Run", "Calls", "Refusals", "Matched", "Unexplained"), found)]
    told = [(each["agent"], each["session"], each["rows"], _homes(each["runs"])) for each in sessions(done)]
    parts += ["## Sessions", _table(("Agent", "Session", "Rows", "Matched with runs"), told)]
    whole = [
        (each.name, each.by, each.run, each.call, each.record, each.ledger_input, each.ledger_output, each.record_input, each.record_output, each.what)
        for each in lines(done.matches)
    ]
    heads = ("Class", "Matched by", "Run", "Call", "Row", "Ledger in", "Ledger out", "Record in", "Record out", "What")
    parts += ["## All rows", _table(heads, whole)]
    if done.rows.skipped:
        parts += ["## Not read", _table(("Where", "Why"), [(each.source, each.why) for each in done.rows.skipped])]
    return "\n\n".join(parts) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    made = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    made += [f"| {' | '.join(_text(cell) for cell in row)} |" for row in rows]
    return "\n".join(made)


def _text(value: object) -> str:
    """Names and words of others stay words: nothing in them is markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(str(value).split())) if value is not None else ""


def _yes(value: bool) -> str:
    return "yes" if value else "NO"


def _homes(value: object) -> str:
    return ", ".join(f"{run} ({count})" for run, count in value.items()) if isinstance(value, dict) else ""
