"""A reconciliation as one page that needs nothing beside it: no script, no font, no network; light and dark; readable by a screen reader and on paper.

Whatever comes from a record or a ledger is escaped, and the page's own policy forbids it to load or run anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from gateway.reconcile.match import Match
from gateway.reconcile.reconciling import Reconciliation, runs, sessions
from gateway.reconcile.report_lines import ReportLine, class_lines, lines, scope, title, verdict
from gateway.reconcile.timeline import timeline

TIMELINES_MAX: Final = 50
"""Runs of a campaign that are drawn."""

PALETTE: Final = """
:root {
  color-scheme: light dark;
  --ink: #1d2126; --soft: #5a6470; --line: #d5dae0; --paper: #ffffff; --good: #2c7a4b; --known: #7d8b9c; --bad: #b3261e; --wash: #fdecea
}
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --soft: #a3adb9; --line: #3a424c; --paper: #15181c; --good: #6cc08b; --known: #8896a8; --bad: #ff8a80; --wash: #3a1f1d }
}
"""
"""Also of the status page."""

STYLE: Final = """
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper) }
h1 { font-size: 1.5rem; margin: 0 0 .5rem } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem } h3 { font-size: 1rem; margin: 1rem 0 .25rem }
p.verdict { font-weight: 600; padding: .6rem .8rem; border-left: .35rem solid var(--good) }
p.verdict.bad { border-color: var(--bad); background: var(--wash) }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .875rem }
caption { text-align: left; color: var(--soft); padding-bottom: .25rem }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid var(--line) }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
td.id { font-family: ui-monospace, monospace; font-size: .8rem; overflow-wrap: anywhere }
tr.bad td:first-child, tr.bad th { border-left: .35rem solid var(--bad); font-weight: 600 } tr.bad { background: var(--wash) }
svg { width: 100%; height: auto; border: 1px solid var(--line); border-radius: .25rem }
svg rect.equal { fill: var(--good) } svg rect.explained { fill: var(--known); fill-opacity: .55; stroke: var(--known) }
svg rect.unexplained { fill: var(--bad); stroke: var(--ink); stroke-width: 1.5 }
svg text.mark { fill: var(--paper); font: 700 11px sans-serif; pointer-events: none }
svg line.wait { stroke: var(--soft); stroke-dasharray: 2 2 } svg line.tick { stroke: var(--line) }
svg text.tick { fill: var(--soft); font: 11px sans-serif }
.key span { display: inline-block; margin-right: 1.2rem }
.key i { display: inline-block; width: .8rem; height: .8rem; margin-right: .35rem; border: 1px solid var(--ink) }
@media print { body { max-width: none; padding: 0 } }
"""
KEY: Final = (
    '<p class="key"><span><i style="background:var(--good)"></i>equal</span><span><i style="background:var(--known)"></i>explained</span>'
    '<span><i style="background:var(--bad)"></i>! unexplained</span><span>dotted: waiting</span></p>'
)
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def page(done: Reconciliation) -> str:
    body = [
        f"<h1>{escape(title(done))}</h1>",
        f'<p class="verdict{"" if done.clean else " bad"}">{escape(verdict(done))}</p>',
        f"<p>{escape(scope(done))}</p>",
        *_classes(done),
        *_lines("Unexplained", "What a person has to look at", [each for each in lines(done.matches) if not each.explained]),
        *_witnesses(done),
        *_timelines(done),
        *_runs(done),
        *_sessions(done),
        *_lines("All rows", "Calls in the order of their admission, then rows of no call", lines(done.matches)),
        *_skipped(done),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>{escape(title(done))}</title><style>{PALETTE}{STYLE}</style></head>\n'
        f"<body><main>\n{chr(10).join(body)}\n</main></body></html>\n"
    )


def _classes(done: Reconciliation) -> list[str]:
    rows = [(each.name.value, each.count, "yes" if each.explained else "no", f"{each.says} {each.do}".strip()) for each in class_lines(done)]
    bad = {place for place, each in enumerate(class_lines(done)) if not each.explained}
    return ["<h2>Classes</h2>", _table("How many rows of which kind", ("Class", "#Rows", "Explained", "Meaning, and what to do"), rows, bad)]


def _lines(heading: str, caption: str, of: Sequence[ReportLine]) -> list[str]:
    if not of:
        return []
    heads = ("Class", "Matched by", "Run", "=Call", "=Row", "#Ledger in", "#Ledger out", "#Record in", "#Record out", "What")
    rows = [
        (each.name.value, each.by, each.run, each.call, each.record, each.ledger_input, each.ledger_output, each.record_input, each.record_output, each.what)
        for each in of
    ]
    return [f"<h2>{escape(heading)}</h2>", _table(caption, heads, rows, {place for place, each in enumerate(of) if not each.explained})]


def _witnesses(done: Reconciliation) -> list[str]:
    if not done.witnesses:
        return []
    heads = ("Engine", "Tokens", "#Engine counted", "#Ledger", "#Records", "Says")
    rows = [(each.engine, each.what, each.counted, each.ledger, each.records, each.says) for each in done.witnesses]
    bad = {place for place, each in enumerate(done.witnesses) if not each.explained}
    return ["<h2>The engine's own counters</h2>", _table("Between the two looks at its metrics", heads, rows, bad)]


def _timelines(done: Reconciliation) -> list[str]:
    by_run: dict[str, list[Match]] = {name: [] for name in done.side.runs}
    for each in done.matches:
        if (call := each.call) is not None:
            by_run[call.run_name].append(each)
    drawn = [(name, svg) for name, of in list(by_run.items())[:TIMELINES_MAX] if (svg := timeline(name, of))]
    if not drawn:
        return []
    return ["<h2>Calls in time</h2>", KEY, *(part for name, svg in drawn for part in (f"<h3>{escape(name)}</h3>", svg))]


def _runs(done: Reconciliation) -> list[str]:
    if done.side.run:
        return []
    rows = [(each["run"], each["calls"], each["refusals"], each["matched"], each["unexplained"]) for each in runs(done)]
    return ["<h2>Runs</h2>", _table("Runs of the campaign", ("Run", "#Calls", "#Refusals", "#Matched", "#Unexplained"), rows)]


def _sessions(done: Reconciliation) -> list[str]:
    rows = [(each["agent"], each["session"], each["rows"], _homes(each["runs"])) for each in sessions(done)]
    return ["<h2>Sessions</h2>", _table("Found by what was matched, not by names", ("Agent", "=Session", "#Rows", "Matched with runs"), rows)]


def _skipped(done: Reconciliation) -> list[str]:
    rows = [(each.source, each.why) for each in done.rows.skipped]
    return ["<h2>Not read</h2>", _table("Places in the records", ("=Where", "Why"), rows)] if rows else []


def _homes(value: object) -> str:
    return ", ".join(f"{run} ({count})" for run, count in value.items()) if isinstance(value, dict) else ""


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], bad: Iterable[int] = ()) -> str:
    """A head that begins with # is of numbers, with = of ids."""
    kinds = [{"#": "n", "=": "id"}.get(head[0], "") for head in heads]
    cells = "".join(f'<th scope="col"{_class(kind if kind == "n" else "")}>{escape(head.lstrip("#="))}</th>' for head, kind in zip(heads, kinds, strict=True))
    marked = set(bad)
    made = [
        f"<tr{_class('bad' if place in marked else '')}>"
        + "".join(f"<td{_class(kind)}>{escape(_shown(cell, kind))}</td>" for cell, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for place, row in enumerate(rows)
    ]
    head, body = f"<thead><tr>{cells}</tr></thead>", f"<tbody>{''.join(made)}</tbody>"
    words = escape(caption)
    return f'<div class="scroll" role="region" aria-label="{words}" tabindex="0"><table><caption>{words}</caption>{head}{body}</table></div>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _shown(cell: object, kind: str) -> str:
    if kind == "n":
        return f"{cell:,}" if isinstance(cell, int) else "–"
    return "" if cell is None else str(cell)
