"""What counts as reached: a driver's declared results, read as yes, no or not known. What was not declared is not known, never a no."""

from __future__ import annotations

from typing import cast

from gateway.reports.call_rows import Row

YES = frozenset(("true", "yes", "pass", "passed", "1", "completed"))
NO = frozenset(("false", "no", "fail", "failed", "0", "aborted", "blocked", "token_limit", "time_limit", "budget"))
JUDGE, TURN_END, EXIT = "judge", "turn_end", "exit"


def reached(run: Row | None, name: str) -> bool | None:
    """`name`: a named outcome, or `judge`, `turn_end` (completed), `exit` (0). None: not known."""
    results = cast(Row, (run or {}).get("results", {}))
    if name == EXIT:
        return results["exit"] == 0 if "exit" in results else None
    value = results.get(name) if name in (JUDGE, TURN_END) else cast("dict[str, str]", results.get("outcomes", {})).get(name)
    word = str(value).strip().lower() if value is not None else ""
    return True if word in YES else False if word in NO else None


def tallied(runs: list[Row]) -> list[Row]:
    """How many runs of each label reached what was declared, of how many; what is not known is in neither's favour."""
    found: list[Row] = []
    for label in sorted({cast(str, run["label"]) for run in runs}):
        of_label = [run for run in runs if run["label"] == label]
        found += [{"label": label, "outcome": name, **tally(of_label, name)} for name in names_of(of_label)]
    return found


def tally(runs: list[Row], name: str) -> Row:
    known = [found for run in runs if (found := reached(run, name)) is not None]
    return {"reached": sum(known), "of": len(runs), "unknown": len(runs) - len(known)}


def names_of(runs: list[Row]) -> list[str]:
    """Every outcome that some run declares, named ones first."""
    named: set[str] = set()
    beside: set[str] = set()
    for run in runs:
        results = cast(Row, run.get("results", {}))
        named |= cast("dict[str, str]", results.get("outcomes", {})).keys()
        beside |= {name for name in (JUDGE, TURN_END, EXIT) if name in results}
    return [*sorted(named), *[name for name in (JUDGE, TURN_END, EXIT) if name in beside]]
