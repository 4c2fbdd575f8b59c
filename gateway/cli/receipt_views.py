"""A receipt for people. Usage and charge stand side by side and are never added; what is unknown is counted as unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.cli.screen import Column, Facts, Line, Row, Table, View
from gateway.cli.usage_views import known, overshoot, sources_table
from gateway.cli.words import Kind, printable

RUN_FACTS: Final = (
    Column("receipt", "receipt"),
    Column("task", "task"),
    Column("repeat", "repeat", Kind.OPTIONAL_NUMBER),
    Column("label", "label"),
    Column("pins", "pins"),
    Column("declared", "declared"),
    Column("outcomes", "calls ended"),
    Column("last_outcome", "last call"),
    Column("refused", "refused"),
    Column("stopped_by", "stopped by"),
    Column("policy_hash", "policy hash"),
    Column("hash", "receipt hash"),
    Column("replaces", "replaces"),
)
CAMPAIGN_FACTS: Final = (
    Column("receipt", "receipt"),
    Column("policy_name", "policy"),
    Column("policy_hash", "policy hash"),
    Column("planned_runs", "planned runs", Kind.OPTIONAL_NUMBER),
    Column("opened_runs", "opened runs", Kind.NUMBER),
    Column("missing_runs", "missing runs", Kind.OPTIONAL_NUMBER),
    Column("unplanned_runs", "unplanned runs", Kind.OPTIONAL_NUMBER),
    Column("unsettled", "unsettled"),
    Column("hash", "receipt hash"),
    Column("replaces", "replaces"),
)
RUNS: Final = (Column("run", "RUN"), Column("receipt", "RECEIPT", Kind.NUMBER), Column("hash", "HASH"))
TOTALS: Final = (
    Column("quantity", "QUANTITY"),
    Column("usage", "USAGE", Kind.NUMBER),
    Column("unknown", "UNKNOWN", Kind.OPTIONAL_NUMBER),
    Column("charge", "CHARGE", Kind.OPTIONAL_NUMBER),
)
QUANTITIES: Final = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "tool_calls")

Json = Mapping[str, Any]


def receipt_views(name: str, receipt: Json) -> list[View]:
    return _campaign(name, receipt) if "labels" in receipt else _run(name, receipt)


def _run(name: str, receipt: Json) -> list[View]:
    row = {
        **receipt,
        **receipt.get("seen", {}),
        "pins": dict(receipt.get("pins", ())),
        "replaces": _replaced(receipt),
        "declared": receipt.get("results") or "nothing",
        "refused": receipt["totals"].get("refused"),
    }
    facts = Facts(title=f"Receipt of run {name}", row=row, columns=RUN_FACTS)
    return [facts, Line(), *totals_views(receipt["totals"]), *_conflicts(receipt.get("conflicts", []))]


def _campaign(name: str, receipt: Json) -> list[View]:
    unsettled = {one["run"]: one["calls"] for one in receipt.get("unsettled", [])}
    views: list[View] = [
        Facts(title=f"Receipt of campaign {name}", row={**receipt, "replaces": _replaced(receipt), "unsettled": unsettled}, columns=CAMPAIGN_FACTS),
        Line(),
    ]
    views.append(Table(columns=RUNS, rows=receipt["runs"], empty="No run has a receipt."))
    for label in receipt["labels"]:
        views += [Line(), Line(f"Label {printable(label['label']) or '-'}, runs: {label['runs']}"), *totals_views(label["totals"])]
    return views


def _replaced(receipt: Json) -> str:
    """Of a receipt that came after a correction or a late settlement: the one before it, so that the chain can be followed."""
    before = receipt.get("replaces")
    return f"receipt {before['receipt']}, {before['hash']}" if before else ""


def totals_views(totals: Json) -> list[View]:
    usage, charge = totals["usage"], totals["charge"]
    closed = sum(source["calls"] for source in totals["sources"].values())
    rows: list[Row] = [{"quantity": "requests", "usage": totals["calls"], "charge": charge["requests"]}]
    rows += [
        {"quantity": name, "usage": known(usage[name], closed), "unknown": usage[name]["unknown"], "charge": charge.get(name)}
        for name in QUANTITIES
        if name in usage
    ]
    return [Table(columns=TOTALS, rows=rows), *overshoot(totals), Line(), sources_table(totals["sources"])]


def _conflicts(conflicts: list[str]) -> list[View]:
    return [Line(), *(Line(f"conflict: {one}") for one in conflicts)] if conflicts else []
