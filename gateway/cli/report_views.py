"""A campaign's report for people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from gateway.cli.screen import Column, Facts, Line, Table, View
from gateway.cli.usage_views import known, sources_table
from gateway.cli.words import UNKNOWN, Kind, printable

Json = Mapping[str, Any]

SUMS: Final = (
    Column("calls", "CALLS", Kind.NUMBER),
    Column("input", "INPUT\nUSED", Kind.NUMBER),
    Column("output", "OUTPUT\nUSED", Kind.NUMBER),
    Column("both", "BOTH", Kind.NUMBER),
    Column("unknown", "UNKNOWN\nUSAGE", Kind.NUMBER),
    Column("open", "OPEN", Kind.NUMBER),
    Column("charged_input", "CHARGED\nINPUT", Kind.NUMBER),
    Column("charged_output", "CHARGED\nOUTPUT", Kind.NUMBER),
    Column("share", "SHARE OF\nCALLS, INPUT, OUTPUT"),
    Column("outcomes", "OUTCOMES"),
)
SOURCES: Final = (
    Column("label", "LABEL"),
    Column("source", "SOURCE"),
    Column("calls", "CALLS", Kind.NUMBER),
    Column("share", "SHARE OF\nCALLS"),
    Column("input_tokens", "INPUT", Kind.NUMBER),
    Column("output_tokens", "OUTPUT", Kind.NUMBER),
)
TIMES: Final = (
    Column("what", "TIME"),
    Column("calls", "CALLS", Kind.OPTIONAL_NUMBER),
    Column("sum", "ADDED UP"),
    Column("union", "ON THE CLOCK"),
)
OCCUPANCY: Final = (
    Column("upstream", "UPSTREAM"),
    Column("slots", "SLOTS", Kind.NUMBER),
    Column("used", "OF THE SLOTS' TIME"),
    Column("busy", "AT LEAST ONE BUSY"),
)
RATES: Final = (
    Column("label", "LABEL"),
    Column("per", "PER HOUR OF"),
    Column("calls", "CALLS", Kind.NUMBER),
    Column("input_tokens", "INPUT", Kind.NUMBER),
    Column("output_tokens", "OUTPUT", Kind.NUMBER),
)
CONTEXTS: Final = (
    Column("label", "LABEL"),
    Column("lane", "LANE"),
    Column("role", "ROLE"),
    Column("runs", "RUNS", Kind.NUMBER),
    Column("first_bytes", "FIRST CALL\nBYTES", Kind.NUMBER),
    Column("last_bytes", "LAST CALL\nBYTES", Kind.NUMBER),
)
CORRECTIONS: Final = (
    Column("run", "RUN"),
    Column("call", "CALL"),
    Column("was", "WAS"),
    Column("is", "IS"),
    Column("reason", "WHY"),
    Column("evidence", "EVIDENCE"),
    Column("number", "ENTRY", Kind.NUMBER),
)
ATTEMPTS: Final = (
    Column("run", "RUN"),
    Column("task", "TASK"),
    Column("repeat", "REPEAT", Kind.OPTIONAL_NUMBER),
    Column("label", "LABEL"),
    Column("state", "STATE"),
    Column("results", "DECLARED"),
    Column("stopped_by", "STOPPED BY"),
    Column("conflicts", "CONFLICTS"),
)
DECLARED: Final = (Column("label", "LABEL"), Column("outcome", "OUTCOME"), Column("reached", "REACHED"))
RUNS: Final = (
    Column("planned", "planned", Kind.OPTIONAL_NUMBER),
    Column("opened", "opened", Kind.NUMBER),
    Column("closed", "closed", Kind.NUMBER),
    Column("open", "open", Kind.NUMBER),
    Column("missing", "missing"),
    Column("unplanned", "unplanned"),
)
NO_OUTCOME: Final = "Declared: nothing."
NOTE: Final = (
    "Used is what is known to be used, charged is what counts against limits; neither is added to the other. "
    "Added up, times that overlap count more than once; on the clock, once. Calls whose end nobody saw are in no time."
)


def report_views(report: Json) -> list[View]:
    runs = {**report["runs"]}
    if "missing_count" in runs:
        runs["missing"] = str(runs["missing_count"])
    views: list[View] = [
        Line(f"Campaign {report['campaign']}, policy {report['policy_name']} {report['policy_hash'][:12]}, as of entry {report['as_of']}."),
        Line(),
        Facts(title="Runs", row=runs, columns=RUNS),
    ]
    views += [Line(), Table(title="Run by run", columns=ATTEMPTS, rows=report["attempts"], empty="Run by run: no runs.")]
    views += [Line(), Table(title="Declared", columns=DECLARED, rows=[{**row, "reached": of_known(row)} for row in report["declared"]], empty=NO_OUTCOME)]
    for by, title in (("lane", "By lane"), ("label", "By label"), ("model", "By model"), ("run", "By run")):
        views += [Line(), _sums(report, by, title)]
    if "total" not in report and report["labels"]:
        named = ", ".join(label or "(none)" for label in report["labels"])
        views.append(Line(f"No line over all: it would cover the labels {named}. --across-labels gives one."))
    empty = "Where the numbers come from: no call has ended."
    views += [Line(), Table(title="Where the numbers come from", columns=SOURCES, rows=_sources(report), empty=empty)]
    views += [Line(), *_times(report), Line()]
    views.append(Table(title="Prompts, as medians over runs", columns=CONTEXTS, rows=report["contexts"], empty="Prompts: none is on record."))
    views += [Line(), Table(title="Corrected", columns=CORRECTIONS, rows=[_corrected(row) for row in report["corrections"]], empty="Corrected: nothing.")]
    return [*views, Line(), *_ends(report), Line(NOTE)]


def _sums(report: Json, by: str, title: str) -> Table:
    names = (Column("value", by.upper()),) if by == "label" else (Column("value", by.upper()), Column("label", "LABEL"))
    rows = [{**_sum(group), "value": group["value"], "label": group["label"]} for group in report["groups"] if group["by"] == by]
    priced = (Column("price", "PRICE"),) if by in ("label", "model") else ()
    if "total" in report and len(rows) > 1:
        rows.append({**_sum(report["total"]), "value": "all", "label": ""})
    return Table(title=title, columns=(*names, *SUMS, *priced), rows=rows, empty=f"{title}: no calls.")


def _sum(group: Json) -> dict[str, Any]:
    usage, charge, ended = group["usage"], group["charge"], group["calls"] - group["open"]
    read, made = known(usage["input_tokens"], ended), known(usage["output_tokens"], ended)
    return {
        "calls": group["calls"],
        "input": read,
        "output": made,
        "both": None if read is None or made is None else read + made,
        "unknown": max(usage["input_tokens"]["unknown"], usage["output_tokens"]["unknown"]),
        "open": group["open"],
        "charged_input": charge["input_tokens"],
        "charged_output": charge["output_tokens"],
        "share": _shares(group["share"]) if "share" in group else "",
        "outcomes": group["outcomes"],
        "price": "{currency} {amount}".format(**group["price"]) if "price" in group else "unpriced",
    }


def _sources(report: Json) -> list[dict[str, Any]]:
    return [
        {"label": group["label"], **of, "share": _per_mille(round(1000 * group["sources"][of["source"]]["calls"] / group["calls"]))}
        for group in report["groups"]
        if group["by"] == "label"
        for of in sources_table(dict(sorted(group["sources"].items()))).rows
    ]


def _shares(share: Json) -> str:
    """Of what its label came to; a share of what is not wholly known is not known."""
    return ", ".join(_per_mille(share[name]) if name in share else UNKNOWN for name in ("calls", "input_tokens", "output_tokens"))


def _corrected(row: Json) -> dict[str, Any]:
    """Usage and what was charged for it, or a run's results: both values."""
    return {**row, **{name: row[name].get("results") or _values(row[name]) for name in ("was", "is")}}


def _values(of: Json) -> Json:
    charged = " + ".join(str(of["charge"].get(name, 0)) for name in ("input_tokens", "output_tokens"))
    return {**of["usage"], "source": of["source"], "charged": charged}


def _times(report: Json) -> list[View]:
    times = report["times"]
    kinds = [
        {"what": words, "calls": times[what]["calls"], "sum": lasting(times[what]["sum_ms"]), "union": lasting(times[what]["union_ms"])}
        for what, words in KINDS.items()
    ]
    rows: list[dict[str, Any]] = [*kinds, {"what": "campaign, opening to closing or last entry", "union": lasting(times["wall_ms"])}]
    if "window" not in times:
        why = f"Of {times['not_known']} calls no end is known" if times["not_known"] else "Nothing ran"
        return [Table(title="Times", columns=TIMES, rows=rows), Line(f"{why}: there is no window, no occupancy and no rate.")]
    rows.insert(len(kinds), {"what": "window, first call to last", "union": lasting(times["window"]["ms"])})
    rows.insert(len(kinds) + 1, {"what": "all slots idle within it", "union": lasting(times["idle"]["ms"])})
    busy = [
        {**row, "used": _per_mille(row["per_mille"]) if "per_mille" in row else "unknown", "busy": lasting(row["busy_union_ms"])} for row in times["occupancy"]
    ]
    rates = [{"label": label, "per": per, **rate} for label, of in report["rates"].items() for per, rate in of.items()]
    hours = times["idle"]["hours"]
    idle = f"Whole hours in which all slots idled: {len(hours)}" + (
        f" ({', '.join(map(_hour, hours[:12]))}{', …' if len(hours) > 12 else ''})." if hours else "."
    )
    return [
        Table(title="Times", columns=TIMES, rows=rows),
        Line(),
        Table(title="Slots over the window", columns=OCCUPANCY, rows=busy),
        Line(f"{idle} The longest: {lasting(times['idle']['longest_ms'])}. Calls whose end is not known: {times['not_known']}."),
        Line(),
        Table(title="Rates", columns=RATES, rows=rates),
    ]


KINDS: Final = {"waiting": "waiting", "waiting_refused": "waiting, then refused", "computing": "computing"}
NAMED: Final = 5
"""Calls on a line; with --json there are more."""


def _ends(report: Json) -> list[View]:
    said = [Line(f"stopped by {limit}: {', '.join(runs)}") for limit, runs in sorted(report["stopped_by"].items())]
    silent = report["silent_length_ends"]
    named = f" ({', '.join(silent['calls'][:NAMED])}{', …' if silent['count'] > NAMED else ''})" if silent["count"] else ""
    return [*said, *(_refused(report["refused"]) or [Line("refused: none")]), Line(f"reached a length end and said nothing: {silent['count']}{named}"), Line()]


def _refused(refused: Json) -> list[View]:
    """A line a label: no number over two."""
    return [
        Line(f"refused{f' ({printable(label)})' if label else ''}: " + ", ".join(f"{code} {count}" for code, count in sorted(codes.items())))
        for label, codes in sorted(refused.items())
    ]


def of_known(counted: Json) -> str:
    """`14/24`; what is not known stands beside it, in neither number's favour."""
    return f"{counted['reached']}/{counted['of']}" + (f", {counted['unknown']} not known" if counted["unknown"] else "")


def lasting(ms: int) -> str:
    """`1 h 02 min 03 s`; below a minute with tenths."""
    seconds, rest = divmod(ms, 1000)
    if seconds < 60:
        return f"{seconds}.{rest // 100} s"
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours} h {minutes:02d} min {seconds % 60:02d} s" if hours else f"{minutes} min {seconds % 60:02d} s"


def _hour(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:00Z")


def _per_mille(value: int) -> str:
    return f"{value // 10}.{value % 10} %"
