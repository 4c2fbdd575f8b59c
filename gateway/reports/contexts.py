"""How prompts grew: bytes by role in the first and the last call of each run and lane, as medians over the runs."""

from __future__ import annotations

from statistics import median
from typing import cast

from gateway.reports.call_rows import Row


class Contexts:
    def __init__(self) -> None:
        self._ends: dict[tuple[str, str], list[tuple[dict[str, int], dict[str, int], int]]] = {}

    def add(self, label: str, calls: list[Row]) -> None:
        """One run's calls, in the order of admission."""
        by_lane: dict[str, list[dict[str, int]]] = {}
        for call in calls:
            roles = cast("dict[str, int]", cast(Row, call.get("asked", {})).get("bytes_by_role", {}))
            if roles:
                by_lane.setdefault(cast(str, call["lane"]), []).append(roles)
        for lane, seen in by_lane.items():
            self._ends.setdefault((label, lane), []).append((seen[0], seen[-1], len(seen)))

    def rows(self) -> list[Row]:
        found: list[Row] = []
        for (label, lane), ends in sorted(self._ends.items()):
            for role in sorted({role for first, last, _ in ends for role in (*first, *last)}):
                first = round(median(first.get(role, 0) for first, _, _ in ends))
                last = round(median(last.get(role, 0) for _, last, _ in ends))
                found.append({"label": label, "lane": lane, "role": role, "runs": len(ends), "first_bytes": first, "last_bytes": last})
        return found
