"""Rows as CSV for spreadsheets: fixed columns, unknown left empty, never 0. Text that a spreadsheet would take for a formula is kept from it."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from gateway.accounting.tally import CHARGE_COLUMNS, USAGE_COLUMNS, Content
from gateway.reports.aggregates import flat

USAGE = tuple(f"usage.{column}" for column in USAGE_COLUMNS)
CHARGE = tuple(f"charge.{column}" for column in CHARGE_COLUMNS)
SUMS = tuple(f"usage.{column}.{part}" for column in USAGE_COLUMNS for part in ("sum", "unknown"))

CALL_COLUMNS = (
    *("call", "campaign", "run", "label", "lane", "model", "upstream", "dialect", "stream", "admitted_ms", "ended_ms", "waited_ms", "status", "outcome"),
    *("source", *USAGE, *CHARGE, "counted_by", "flags", "ceiling", "ceiling_from", "clamped", "reserved.input_tokens", "reserved.output_tokens"),
    *("seen.response_id", "seen.finish_reason", "asked.body_sha256", "asked.sent_sha256", "asked.canonical_sha256", "key", "number", "closing_number"),
)
RUN_COLUMNS = (
    *("run", "label", "task", "repeat", "state", "opened_ms", "closing_ms", "totals.calls", "totals.voided", "unsettled"),
    *(f"totals.{column}" for column in (*SUMS, *CHARGE)),
    *("results.turn_end", "results.exit", "results.judge", "stopped_by", "conflicts", "limits_hash", "receipt.receipt", "receipt.hash"),
)
OUTCOMES = "results.outcomes."
AGGREGATE_COLUMNS = ("by", "value", "label", "calls", "open", *SUMS, *CHARGE)


def run_columns(runs: Sequence[Content]) -> tuple[str, ...]:
    """With a column for each outcome that some run declares."""
    return (*RUN_COLUMNS, *sorted({name for run in runs for name in flat(run) if name.startswith(OUTCOMES)}))


def header(columns: Sequence[str]) -> str:
    return _line(list(columns))


def line(columns: Sequence[str], row: Content) -> str:
    found = flat(row)
    return _line([_cell(found.get(column)) for column in columns])


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str() if value[:1] in ("=", "+", "-", "@", "\t", "\r"):
            return f"'{value}"
    return str(value)


def _line(cells: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()
