"""Usage for people and as CSV. A sum is of what is known; in how many calls a number is unknown stands beside it, and from which sources the sums come."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any, Final

from gateway.accounting.tally import CHARGE_COLUMNS, OVERSHOOT_COLUMNS, USAGE_COLUMNS
from gateway.accounting.usage import Source
from gateway.cli.screen import Column, Line, Table, View
from gateway.cli.words import UNKNOWN, Kind

Json = Mapping[str, Any]

NAMES: Final = (
    Column("day", "DAY"),
    Column("campaign", "CAMPAIGN"),
    Column("run", "RUN"),
    Column("lane", "LANE"),
    Column("model", "MODEL"),
    Column("label", "LABEL"),
)
NUMBERS: Final = (
    Column("calls", "CALLS", Kind.NUMBER),
    Column("open", "OPEN", Kind.NUMBER),
    Column("input_tokens", "INPUT\nUSED", Kind.NUMBER),
    Column("input_tokens_unknown", "UNKNOWN\nINPUTS", Kind.NUMBER),
    Column("output_tokens", "OUTPUT\nUSED", Kind.NUMBER),
    Column("output_tokens_unknown", "UNKNOWN\nOUTPUTS", Kind.NUMBER),
    Column("charged_requests", "CHARGED\nREQUESTS", Kind.NUMBER),
    Column("charged_input_tokens", "CHARGED\nINPUT", Kind.NUMBER),
    Column("charged_output_tokens", "CHARGED\nOUTPUT", Kind.NUMBER),
    Column("by_source", "CALLS BY\nSOURCE"),
)
SOURCES: Final = (
    Column("source", "SOURCE"),
    Column("calls", "CALLS", Kind.NUMBER),
    Column("input_tokens", "INPUT", Kind.NUMBER),
    Column("output_tokens", "OUTPUT", Kind.NUMBER),
)
NOTE: Final = (
    "Used is what is known to be used, charged is what counts against limits; one is never added to the other. UNKNOWN: calls whose number is not known."
)
NOTHING_CLOSED: Final[Json] = {
    "usage": {column: {"sum": 0, "unknown": 0} for column in USAGE_COLUMNS},
    "charge": dict.fromkeys(CHARGE_COLUMNS, 0),
    "sources": {},
}


def usage_views(answer: Json) -> list[View]:
    groups = answer["groups"]
    if not groups:
        return [Line("No calls.")]
    names = [column for column in NAMES if column.key in groups[0]]
    if "label" not in groups[0]:
        names.append(Column("labels", "LABEL"))
    rows = [flat(group) for group in groups]
    if answer["total"] is not None and len(rows) > 1:
        rows.append({names[0].key: "total", **flat(answer["total"])})
    views: list[View] = [Table(columns=(*names, *NUMBERS), rows=rows), Line(), Line(NOTE)]
    if "zone" in answer:
        views.append(Line(f"Days in {answer['zone']}: a call belongs to the day in which it was admitted."))
    if answer["total"] is None:
        labels = ", ".join(label or "(none)" for label in answer["labels"])
        views.append(Line(f"No total: it would cover the labels {labels}. --across-labels gives one."))
    else:
        views += [*overshoot(answer["total"]), Line(), sources_table(answer["total"].get("sources", {}))]
    return views


def overshoot(totals: Json) -> list[View]:
    """Nothing where nothing was."""
    above = totals.get("overshoot", {})
    amounts = [f"{name} {above[name]}" for name in OVERSHOOT_COLUMNS if name in above]
    return [Line(f"overshoot: charged above what was reserved in {above['calls']} calls: {', '.join(amounts)}")] if above else []


def sources_table(sources: Json) -> Table:
    """Where the sums come from."""
    rows = [
        {"source": name, "calls": of["calls"], "input_tokens": _of_source(name, of["input_tokens"]), "output_tokens": _of_source(name, of["output_tokens"])}
        for name, of in sources.items()
    ]
    return Table(columns=SOURCES, rows=rows, empty="No call has ended.")


def _of_source(source: str, total: int) -> int | None:
    return None if source == Source.UNKNOWN and total == 0 else total


def flat(group: Json) -> dict[str, object]:
    """One row: names, sums, unknowns, charges, sources. A sum of which nothing is known is unknown."""
    closed = {**NOTHING_CLOSED, **group}
    ended = group["calls"] - group["open"]
    row: dict[str, object] = {name: value for name, value in group.items() if name not in NOTHING_CLOSED}
    for column, of in closed["usage"].items():
        row[column] = known(of, ended)
        row[f"{column}_unknown"] = of["unknown"]
    row |= {f"charged_{column}": number for column, number in closed["charge"].items()}
    row["by_source"] = {source: of["calls"] for source, of in closed["sources"].items()}
    return row


def known(of: Json, calls: int) -> int | None:
    """The sum of what is known; unknown where nothing is."""
    total: int = of["sum"]
    return None if calls and of["unknown"] >= calls else total


def csv_text(answer: Json) -> str:
    """One line a group, the same columns whatever is in it; never a total, so that a column can be summed. Unknown is the word."""
    names = _csv_names(answer)
    sums = [key for column in USAGE_COLUMNS for key in (column, f"{column}_unknown")]
    sources = [f"calls_{source}" for source in Source]
    header = [*names, "calls", "open", *sums, *(f"charged_{column}" for column in CHARGE_COLUMNS), *sources]
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    lines.writerow(header)
    for group in answer["groups"]:
        row = flat(group)
        of_sources = row["by_source"]
        assert isinstance(of_sources, dict)
        row |= {f"calls_{source}": of_sources.get(source, 0) for source in Source}
        row |= {"labels": " ".join(group.get("labels", ())), "zone": answer.get("zone", "")}
        lines.writerow(UNKNOWN if row[name] is None else row[name] for name in header)
    return written.getvalue()


def _csv_names(answer: Json) -> list[str]:
    by: dict[str, list[str]] = {
        "run": ["campaign", "run"],
        "lane": ["campaign", "lane"],
        "campaign": ["campaign"],
        "model": ["model"],
        "day": ["day", "zone"],
    }
    return [*by[answer["by"]], "labels"] if answer["by"] in by else ["label"]
