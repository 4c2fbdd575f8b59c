"""Sums over calls: by run, lane, model and label, each apart by label, so that no sum covers two labels."""

from __future__ import annotations

from typing import cast

from gateway.accounting.tally import CallTally, Content, added, totals_of

Row = dict[str, object]
BY = ("label", "lane", "model", "run")


class Aggregates:
    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, str], Row] = {}

    def add(self, run: str, label: str, rows: dict[str, Row], calls: dict[str, CallTally]) -> None:
        """One run's calls. Those that were voided are in `rows`, not in `calls`: nothing was sent."""
        kinds: dict[tuple[str, str], list[CallTally]] = {}
        for call_id, call in calls.items():
            row = rows[call_id]
            kinds.setdefault((cast(str, row["lane"]), cast(str, row["model"])), []).append(call)
        for (lane, model), found in kinds.items():
            totals = {**totals_of(found), "open": sum(not call.source for call in found)}
            for by, value in zip(BY, (label, lane, model, run), strict=True):
                key = (by, value, label)
                self._groups[key] = added(self._groups.get(key, {}), totals)

    def rows(self) -> list[Row]:
        return [{"by": by, "value": value, "label": label, **totals} for (by, value, label), totals in sorted(self._groups.items())]


def flat(row: Content) -> Row:
    """One row of a table: nested names joined by dots."""
    result: Row = {}
    for name, value in row.items():
        if isinstance(value, dict):
            result |= {f"{name}.{inner}": found for inner, found in flat(value).items()}
        elif isinstance(value, list):
            result[name] = " ".join(map(str, value))
        else:
            result[name] = value
    return result
