"""Campaigns side by side. Runs are paired by what they are attempts at; a run that one side lacks is missing there, and in no other number.

Medians are over every run that was opened, failed ones included: leaving those out would compare each campaign's luckier part. A run of whose usage
nothing is known has no number there, and is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import cast

from gateway.errors import GatewayError
from gateway.reports.call_rows import Row
from gateway.reports.campaign import runs_done
from gateway.reports.gathering import CampaignRead, Chains, RunRead, read_campaign
from gateway.reports.outcomes import names_of, reached, tally
from gateway.reports.times import Times

PAIR_BY = ("task", "repeat", "label", "run")
LIMITS_OF_THIS = (
    "It shows what came of these runs, not why: the campaigns differ in everything that is listed as different and in what the ledger does not see, "
    "and a model that samples gives other results the next time; {pairs} pairs tell a small difference from chance only where they are many."
)


class AmbiguousPair(GatewayError):
    """Two runs of one campaign have the same key. The text names them."""


class _Side:
    """One campaign, read."""

    def __init__(self, ledger: Chains, campaign: str, as_of: int) -> None:
        self._metrics: dict[str, Row] = {}
        self.read: CampaignRead = read_campaign(ledger, campaign, self._look, as_of=as_of)

    def _look(self, run: RunRead) -> None:
        times = Times()
        lanes: dict[str, Row] = {}
        for call in run.sent:
            times.add(call)
            lane = lanes.setdefault(cast(str, call["lane"]), {"calls": 0, "unknown": 0})
            usage = cast("dict[str, int]", call.get("usage", {}))
            lane["calls"] = cast(int, lane["calls"]) + 1
            for column in {"input_tokens", "output_tokens"} & usage.keys():
                lane[column] = cast(int, lane.get(column, 0)) + usage[column]
            lane["unknown"] = cast(int, lane["unknown"]) + (not {"input_tokens", "output_tokens"} <= usage.keys())
        found = times.document({}, (0, 0))
        waiting, computing = cast("dict[str, int]", found["waiting"]), cast("dict[str, int]", found["computing"])
        self._metrics[cast(str, run.row["run"])] = {"lanes": lanes, "waiting_ms": waiting["union_ms"], "computing_ms": computing["union_ms"]}

    def keyed(self, by: Sequence[str]) -> dict[tuple[str, ...], Row]:
        """Runs by key. Raises AmbiguousPair."""
        found: dict[tuple[str, ...], Row] = {}
        for run in self.read.runs:
            key = tuple(str(run.get(name, "")) for name in by)
            if key in found:
                named = ", ".join(f"{name} {part or '(none)'}" for name, part in zip(by, key, strict=True))
                raise AmbiguousPair(f"campaign {self.read.campaign}: runs {found[key]['run']} and {run['run']} are both {named}")
            found[key] = run
        return found

    def planned(self, by: Sequence[str]) -> set[tuple[str, ...]]:
        details = cast(Row, self.read.opening.get("details", {}))
        rows = cast("list[tuple[str, str, str, int]]", details.get("plan", []))
        named = [dict(zip(("run", "task", "label", "repeat"), row, strict=True)) for row in rows]
        return {tuple(str(row.get(name) or "") for name in by) for row in named}

    def cell(self, run: Row | None) -> Row:
        if run is None:
            return {"missing": True}
        return {"run": run["run"], "state": run["state"], **self._metrics[cast(str, run["run"])]}

    def summary(self, outcomes: Sequence[str]) -> Row:
        runs = self.read.runs
        return {
            "campaign": self.read.campaign,
            "runs": runs_done(self.read),
            "outcomes": {name: tally(runs, name) for name in outcomes},
            "medians": self._medians(),
            "policy_hash": self.read.opening["policy_hash"],
            "made_of": self.made_of(),
        }

    def _medians(self) -> Row:
        if not self.read.runs:
            return {}
        found: Row = {}
        for column in ("calls", "input_tokens", "output_tokens"):
            sums = [amount for run in self.read.runs if (amount := _over_lanes(self._metrics[cast(str, run["run"])], column)) is not None]
            if sums:
                found[column] = round(median(sums))
        for column in ("waiting_ms", "computing_ms"):
            found[column] = round(median(cast(int, self._metrics[cast(str, run["run"])][column]) for run in self.read.runs))
        found["runs"] = len(self.read.runs)
        found["with_unknown_usage"] = sum(
            any(lane["unknown"] for lane in cast("dict[str, Row]", self._metrics[cast(str, run["run"])]["lanes"]).values()) for run in self.read.runs
        )
        return found

    def made_of(self) -> Row:
        """What a reader needs to know of how it was made."""
        pins = sorted({f"{name}={digest}" for run in self.read.runs for name, digest in cast("dict[str, str]", run.get("pins", {})).items()})
        return {
            "policy": self.read.opening["policy_hash"],
            "pins": pins,
            "engines": self.read.engines,
            "labels": sorted({str(run["label"]) for run in self.read.runs}),
        }


def compare(ledger: Chains, campaigns: Sequence[str], *, pair_by: Sequence[str] = ("task", "repeat"), outcomes: Sequence[str] = (), as_of: int = 0) -> Row:
    """The first campaign is what the others are held against. `outcomes`: all that are declared where none is named. Raises NotFound, AmbiguousPair."""
    sides = [_Side(ledger, campaign, as_of) for campaign in campaigns]
    names = list(outcomes) or names_of([run for side in sides for run in side.read.runs])
    keyed = [side.keyed(pair_by) for side in sides]
    keys = sorted(set().union(*keyed, *(side.planned(pair_by) for side in sides)))
    rows = [{"key": list(key), "sides": [side.cell(runs.get(key)) for side, runs in zip(sides, keyed, strict=True)]} for key in keys]
    for row, key in zip(rows, keys, strict=True):
        row["outcomes"] = {name: [reached(runs.get(key), name) for runs in keyed] for name in names}
    whole = sum(all(key in runs for runs in keyed) for key in keys)
    return {
        "campaigns": [side.summary(names) for side in sides],
        "pair_by": list(pair_by),
        "rows": rows,
        "pairs": [_pairs(keyed[0], other, keys, names, sides[0].read.campaign, side.read.campaign) for other, side in zip(keyed[1:], sides[1:], strict=True)],
        "different": _different(sides),
        "note": LIMITS_OF_THIS.format(pairs=whole),
    }


def _over_lanes(metrics: Row, column: str) -> int | None:
    """What is known of it; None where the run had calls and nothing is."""
    lanes = cast("dict[str, dict[str, int]]", metrics["lanes"]).values()
    known = [lane[column] for lane in lanes if column in lane]
    return sum(known) if known or not lanes else None


def _pairs(first: dict[tuple[str, ...], Row], other: dict[tuple[str, ...], Row], keys: list[tuple[str, ...]], names: Sequence[str], a: str, b: str) -> Row:
    found: Row = {"first": a, "second": b}
    for name in names:
        counts = dict.fromkeys(("both", "only_first", "only_second", "neither", "unknown", "missing"), 0)
        for key in keys:
            if key not in first or key not in other:
                counts["missing"] += 1
                continue
            match reached(first[key], name), reached(other[key], name):
                case (None, _) | (_, None):
                    counts["unknown"] += 1
                case True, True:
                    counts["both"] += 1
                case True, False:
                    counts["only_first"] += 1
                case False, True:
                    counts["only_second"] += 1
                case _:
                    counts["neither"] += 1
        found[name] = counts
    return found


def _different(sides: Sequence[_Side]) -> list[str]:
    made = [side.made_of() for side in sides]
    return [name for name in made[0] if any(other[name] != made[0][name] for other in made[1:])]
