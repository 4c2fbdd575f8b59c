"""Sums over a run's or a campaign's chain, entry by entry: what a receipt says, and what `verify` holds receipts against.

Usage and charge are never added to each other; an unknown number is counted as unknown, never as 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

USAGE_COLUMNS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "tool_calls")
OVERSHOOT_COLUMNS = ("input_tokens", "output_tokens")
CHARGE_COLUMNS = ("requests", "input_tokens", "output_tokens", "tool_calls")

Content = Mapping[str, object]
"""An entry's content as an object."""
Totals = dict[str, object]


@dataclass(slots=True)
class CallTally:
    """How one sent call stands."""

    number: int
    """Of its reservation."""
    at_ms: int
    source: str = ""
    outcome: str = ""
    usage: tuple[int | None, ...] = ()
    charge: tuple[int, ...] = ()
    reserved: Mapping[str, int] = field(default_factory=dict)

    @property
    def overshoot(self) -> dict[str, int]:
        """What was charged above what was reserved."""
        charge = dict(zip(CHARGE_COLUMNS, self.charge, strict=False))
        above = {name: charge.get(name, 0) - self.reserved.get(name, 0) for name in OVERSHOOT_COLUMNS}
        return {name: tokens for name, tokens in above.items() if tokens > 0}


@dataclass(slots=True)
class RunTally:
    """What a run's chain says so far."""

    calls: dict[str, CallTally] = field(default_factory=dict)
    """Without those that were voided."""
    voided: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """By code."""
    final_refusals: list[tuple[int, int, str, str]] = field(default_factory=list)
    """Number, time (of a summing entry: its end), code, limit's name."""
    results: Content = field(default_factory=dict)
    closing_at_ms: int | None = None

    def add(self, content: Content) -> None:
        match content["kind"]:
            case "reserve":
                reserved = cast("dict[str, int]", content.get("reserved", {}))
                self.calls[cast(str, content["call"])] = CallTally(cast(int, content["number"]), cast(int, content["at_ms"]), reserved=reserved)
            case "void":
                del self.calls[cast(str, content["call"])]
                self.voided += 1
            case "settle" | "expire" | "adjust":
                self._close(content)
            case "refuse":
                self._refuse(content, cast(int, content["at_ms"]), 1)
            case "refusal_summary":
                self._refuse(content, cast(int, content["until_ms"]), cast(int, content["count"]))
            case "declare":
                self.results = cast(Content, content["results"])
            case "begin_closing":
                self.closing_at_ms = cast(int, content["at_ms"])

    def _close(self, content: Content) -> None:
        call = self.calls[cast(str, content["call"])]
        usage, charge = cast("dict[str, int]", content["usage"]), cast("dict[str, int]", content["charge"])
        call.source = str(content["source"])
        call.outcome = str(content.get("outcome", call.outcome))  # an adjustment changes numbers, not how the call ended
        call.usage = tuple(map(usage.get, USAGE_COLUMNS))
        call.charge = tuple([charge.get(column, 0) for column in CHARGE_COLUMNS])

    def _refuse(self, content: Content, at_ms: int, count: int) -> None:
        code = cast(str, content["code"])
        self.refused[code] = self.refused.get(code, 0) + count
        if content["final"]:
            limit = cast("dict[str, str]", content.get("limit", {}))
            self.final_refusals.append((cast(int, content["number"]), at_ms, code, limit.get("name", "")))

    @property
    def last_sent(self) -> CallTally | None:
        return max(self.calls.values(), key=lambda call: call.number, default=None)

    @property
    def first_sent_ms(self) -> int | None:
        return min((call.at_ms for call in self.calls.values()), default=None)

    @property
    def stopped_by(self) -> str:
        """The limit of the first final refusal after which no call was sent; empty where there is none."""
        last = self.last_sent
        for number, at_ms, _, name in self.final_refusals:
            if name and (last is None or (number > last.number and at_ms >= last.at_ms)):
                return name
        return ""

    @property
    def unsettled(self) -> int:
        return sum(not call.source for call in self.calls.values())

    @property
    def outcomes(self) -> dict[str, int]:
        return _outcomes(self.calls.values())

    def totals(self) -> Totals:
        return {**totals_of(self.calls.values()), "voided": self.voided, "refused": dict(self.refused)}


@dataclass(slots=True)
class CampaignTally:
    """What a campaign's chain says so far: its runs and their last receipts."""

    runs: dict[str, str] = field(default_factory=dict)
    """Run to label, as opened."""
    receipts: dict[str, Content] = field(default_factory=dict)
    """Run to the line of its last receipt."""

    def add(self, content: Content) -> None:
        match content["kind"]:
            case "open_run":
                self.runs[cast(str, content["run"])] = cast(str, content.get("label", ""))
            case "run_receipt":
                self.receipts[cast(str, content["run"])] = content

    def by_label(self) -> list[dict[str, object]]:
        """One sum a label: there is no total over several."""
        sums: dict[str, tuple[int, Totals]] = {}
        for run, line in self.receipts.items():
            runs, totals = sums.get(self.runs[run], (0, {}))
            sums[self.runs[run]] = runs + 1, added(totals, cast(Totals, line["totals"]))
        return [{"label": label, "runs": runs, "totals": totals} for label, (runs, totals) in sorted(sums.items())]


def totals_of(calls: Collection[CallTally]) -> Totals:
    """Of any set of sent calls."""
    closed = [call for call in calls if call.source]
    usage: dict[str, object] = {}
    for place, column in enumerate(USAGE_COLUMNS):
        known = [call.usage[place] for call in closed]
        usage[column] = {"sum": sum(number for number in known if number is not None), "unknown": sum(number is None for number in known)}
    sources: dict[str, dict[str, int]] = {}
    for call in closed:
        of = sources.setdefault(call.source, {"calls": 0, "input_tokens": 0, "output_tokens": 0})
        of["calls"] += 1
        of["input_tokens"] += call.usage[0] or 0
        of["output_tokens"] += call.usage[1] or 0
    overshoot: dict[str, object] = {}
    for above in [call.overshoot for call in closed if call.overshoot]:
        overshoot = added(overshoot, {"calls": 1, **above})
    totals = {"calls": len(calls), "usage": usage, "sources": sources, "charge": _charged(closed), "outcomes": _outcomes(calls)}
    return {**totals, "overshoot": overshoot} if overshoot else totals


def added(one: Mapping[str, object], other: Mapping[str, object]) -> dict[str, object]:
    """Numbers of the same name added, at every depth."""
    result = dict(one)
    for name, value in other.items():
        if isinstance(value, Mapping):
            result[name] = added(cast("Mapping[str, object]", result.get(name, {})), value)
        else:
            result[name] = cast(int, result.get(name, 0)) + cast(int, value)
    return result


def _charged(closed: list[CallTally]) -> dict[str, int]:
    """Tool calls only where some were charged: receipts of before they could be stand as they were written."""
    sums = {column: sum(call.charge[place] for call in closed) for place, column in enumerate(CHARGE_COLUMNS)}
    return {column: total for column, total in sums.items() if total or column != "tool_calls"}


def _outcomes(calls: Iterable[CallTally]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for call in calls:
        if call.outcome:
            counts[call.outcome] = counts.get(call.outcome, 0) + 1
    return counts
