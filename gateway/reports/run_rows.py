"""One row a run: how it was opened, what was declared of it, what the gateway saw, and its receipt."""

from __future__ import annotations

from typing import cast

from gateway.accounting.tally import Content, RunTally

Row = dict[str, object]


def run_row(opening: Content, tally: RunTally, receipts: list[Row]) -> Row:
    """`receipts`: as they were given out, in order. Open runs have none, and their sums may still grow."""
    row: Row = {"run": opening["run"], "label": opening.get("label", ""), "opened_ms": opening["at_ms"], "number": opening["number"]}
    row |= {name: opening[name] for name in ("task", "policy_hash", "limits_hash") if name in opening}
    made = cast("dict[str, object]", opening.get("details", {}))
    if "repeat" in made:
        row["repeat"] = made["repeat"]
    if "pins" in made:
        row["pins"] = dict(cast("list[tuple[str, str]]", made["pins"]))
    row["state"] = "open" if tally.closing_at_ms is None else "closed" if receipts else "closing"
    if tally.closing_at_ms is not None:
        row["closing_ms"] = tally.closing_at_ms
    row["totals"] = tally.totals()
    row["unsettled"] = tally.unsettled
    if tally.results:
        row["results"] = tally.results
    if stopped_by := tally.stopped_by:
        row["stopped_by"] = stopped_by
    if receipts:
        row["receipt"] = {name: receipts[-1][name] for name in ("receipt", "hash", "number")}
        if receipts[-1]["conflicts"]:
            row["conflicts"] = receipts[-1]["conflicts"]
    return row
