"""The report of a campaign: what ran, what it used, how it ended, when it waited and computed, what did not happen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from gateway.accounting.receipt import planned_names
from gateway.accounting.tally import added
from gateway.reports.aggregates import Aggregates
from gateway.reports.call_rows import Row
from gateway.reports.contexts import Contexts
from gateway.reports.corrections import corrections
from gateway.reports.gathering import CampaignRead, Chains, RunRead, read_campaign
from gateway.reports.outcomes import tallied
from gateway.reports.prices import declared, priced, summed
from gateway.reports.times import Times, rates

SILENT_MAX = 1_000
"""Calls that are listed one by one."""
LENGTH_ENDS = ("length", "cap_cut")
ATTEMPT = ("run", "label", "task", "repeat", "state", "results", "stopped_by", "conflicts", "pins")


class _Look:
    """What is kept of each run."""

    def __init__(self) -> None:
        self.aggregates = Aggregates()
        self.times = Times()
        self.contexts = Contexts()
        self.refused: dict[str, dict[str, int]] = {}
        """By label and code."""
        self.stopped_by: dict[str, list[str]] = {}
        self.corrections: list[Row] = []
        self.silent: list[str] = []

    def __call__(self, run: RunRead) -> None:
        name, label = cast(str, run.row["run"]), cast(str, run.row["label"])
        self.aggregates.add(name, label, run.calls, run.tally.calls)
        self.contexts.add(label, run.sent)
        for code, count in run.tally.refused.items():
            of_label = self.refused.setdefault(label, {})
            of_label[code] = of_label.get(code, 0) + count
        if stopped_by := run.tally.stopped_by:
            self.stopped_by.setdefault(stopped_by, []).append(name)
        self.corrections.extend(corrections(run))
        for refusal in run.refused:
            self.times.add_refusal(refusal)
        for call in run.sent:
            self.times.add(call)
            if _silent(call):
                self.silent.append(cast(str, call["call"]))


def campaign_report(ledger: Chains, campaign: str, *, as_of: int = 0, across_labels: bool = False) -> Row:
    """Raises NotFound. Groups never cover two labels; the one line over all does only where `across_labels` allows it, else it is absent."""
    look = _Look()
    read = read_campaign(ledger, campaign, look, as_of=as_of)
    groups = look.aggregates.rows()
    _price(groups, declared(cast(str, read.opening["policy"])))
    labels = [row for row in groups if row["by"] == "label"]
    total: Row = {}
    if len(labels) == 1 or across_labels:
        for row in labels:
            total = added(total, {name: value for name, value in row.items() if name not in ("by", "value", "label", "price")})
    window = look.times.window or (0, 0)
    end_ms = max(read.closed_ms or read.last_ms, window[1])  # what ran at its closing may have gone on for a while
    times = look.times.document(read.slots, (cast(int, read.opening["at_ms"]), end_ms))
    return {
        "campaign": campaign,
        "as_of": read.as_of,
        "policy_name": read.opening["policy_name"],
        "policy_hash": read.opening["policy_hash"],
        "opened_ms": read.opening["at_ms"],
        **({"closed_ms": read.closed_ms} if read.closed_ms else {}),
        "runs": runs_done(read),
        "attempts": [{name: run[name] for name in ATTEMPT if name in run} for run in read.runs],
        "declared": tallied(read.runs),
        "labels": [row["label"] for row in labels],
        "groups": [{**row, "share": _share(row, labels)} for row in groups],
        **({"total": total} if total else {}),
        "stopped_by": look.stopped_by,
        "refused": look.refused,
        "corrections": look.corrections,
        "times": times,
        "rates": _rates(labels, times),
        "contexts": look.contexts.rows(),
        "silent_length_ends": {"count": len(look.silent), "calls": look.silent[:SILENT_MAX]},
    }


def _price(groups: list[Row], prices: dict[str, Row]) -> None:
    """Of models, and of labels where every model in them has a price. Lanes and runs have none: their sums may be over several models."""
    models = [row for row in groups if row["by"] == "model"]
    for row in models:
        if price := priced(row, prices.get(cast(str, row["value"]))):
            row["price"] = price
    for row in groups:
        if row["by"] == "label" and (price := summed([cast("Row | None", model.get("price")) for model in models if model["label"] == row["label"]])):
            row["price"] = price


def runs_done(read: CampaignRead) -> Row:
    """Planned, opened, closed and missing. A run that did not happen is in no other number."""
    opened = [cast(str, run["run"]) for run in read.runs]
    states = [run["state"] for run in read.runs]
    done: Row = {"opened": len(opened), "open": states.count("open"), "closing": states.count("closing"), "closed": states.count("closed")}
    named = dict.fromkeys(planned_names(read.opening))
    planned = read.opening.get("planned_runs")
    if named:
        there = set(opened)
        done |= {"planned": len(named), "missing": [run for run in named if run not in there], "unplanned": [run for run in opened if run not in named]}
    elif isinstance(planned, int):
        done |= {"planned": planned, "missing_count": max(0, planned - len(opened))}
    return done


def _share(row: Row, labels: Iterable[Row]) -> Row:
    """Of what its label came to, in tenths of a percent; absent where that is nothing or where a part of it is unknown."""
    whole = next(label for label in labels if label["label"] == row["label"])
    found: Row = {}
    for name, part, all_ in [("calls", cast(int, row["calls"]), cast(int, whole["calls"]))] + [
        (column, _known(row, column), _known(whole, column)) for column in ("input_tokens", "output_tokens")
    ]:
        if all_ and part is not None:
            found[name] = round(1000 * part / all_)
    return found


def _known(row: Row, column: str) -> int | None:
    usage = cast("dict[str, dict[str, int]]", row["usage"])[column]
    return None if usage["unknown"] else usage["sum"]


def _rates(labels: list[Row], times: Row) -> Row:
    """A label each; nothing where nothing ran, and no rate of what is not known in every call."""
    found: Row = {}
    for row in labels:
        known = {column: _known(row, column) for column in ("input_tokens", "output_tokens")}
        amounts = {"calls": cast(int, row["calls"]), **{column: amount for column, amount in known.items() if amount is not None}}
        window = cast(Row, times.get("window", {})).get("ms", 0)
        per = {"window": rates(amounts, cast(int, window)), "wall": rates(amounts, cast(int, times["wall_ms"])) if window else None}
        found[cast(str, row["label"])] = {name: rate for name, rate in per.items() if rate is not None}
    return found


def _silent(call: Row) -> bool:
    """It reached a length end and neither text nor a tool call came of it."""
    delivered = cast("dict[str, int] | None", cast(Row, call.get("seen", {})).get("delivered_bytes"))
    return call.get("outcome") in LENGTH_ENDS and delivered is not None and not delivered.get("text") and not delivered.get("tool_arguments")
