"""What was corrected, each step with both values: a call's numbers, a run's results. What stood before stays where it is, so chains can be followed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import cast

from gateway.reports.call_rows import REPLACED, Row
from gateway.reports.gathering import RunRead


def corrections(run: RunRead) -> Iterator[Row]:
    """One row a step, in the order of the calls; the run's results last. `number`: of the entry that corrects."""
    for call in run.sent:
        if "was" in call:
            stands = {**{name: call[name] for name in REPLACED if name in call}, "number": call["closing_number"]}
            for before, after in pairwise([*cast("list[Row]", call["was"]), stands]):
                yield {"run": run.row["run"], "call": call["call"], **_step(before, after)}
    for before, after in pairwise(run.declared):
        found = {"run": run.row["run"], "number": after["number"], "was": {"results": before["results"]}, "is": {"results": after["results"]}}
        yield found | ({"reason": after["reason"]} if "reason" in after else {})


def _step(before: Row, after: Row) -> Row:
    names = ("source", "usage", "charge")
    found: Row = {"number": after["number"], "was": {name: before[name] for name in names}, "is": {name: after[name] for name in names}}
    return found | {name: after[name] for name in ("reason", "evidence") if name in after}
