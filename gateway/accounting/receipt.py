"""Receipts: what a run or a campaign came to, beside what its driver says of it, and where the two disagree.

A receipt is a function of the chain before it and nothing else, so that anyone who has the chain can make it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from gateway.accounting.tally import CampaignTally, Content, RunTally

Body = dict[str, object]


def run_receipt(tally: RunTally, opening: Content, *, policy_hash: str, head: Mapping[str, object], receipt: int, replaces: Content | None) -> Body:
    body: Body = {
        "receipt": receipt,
        "policy_hash": policy_hash,
        "totals": tally.totals(),
        "seen": seen(tally),
        "conflicts": conflicts(tally, opening),
        "head": dict(head),
    }
    for name in ("label", "task", "limits_hash"):
        if name in opening:
            body[name] = opening[name]
    made = cast(Content, opening.get("details", {}))
    body |= {name: made[name] for name in ("repeat", "pins") if name in made}
    if tally.results:
        body["results"] = tally.results
    if replaces is not None:
        body["replaces"] = replaces
    return body


def seen(tally: RunTally) -> dict[str, object]:
    """What the gateway saw, in the words that results are declared in."""
    view: dict[str, object] = {"outcomes": tally.outcomes}
    if (last := tally.last_sent) is not None and last.outcome:
        view["last_outcome"] = last.outcome
    if stopped_by := tally.stopped_by:
        view["stopped_by"] = stopped_by
    return view


def conflicts(tally: RunTally, opening: Content) -> list[str]:
    """Where what was declared can't be what happened."""
    declared = tally.results.get("turn_end", "")
    found: list[str] = []
    if declared == "completed":
        last = tally.last_sent
        if last is not None and last.outcome != "completed":
            found.append(f"declared completed, but its last sent call is {last.outcome or 'unsettled'}")
        if stopped_by := tally.stopped_by:
            found.append(f"declared completed, but stopped by {stopped_by}")
        if _past_deadline(tally, opening):
            found.append("declared completed, but past its deadline")
        if tally.results.get("exit", 0) != 0:
            found.append(f"declared completed, but exit {tally.results['exit']}")
    elif declared == "token_limit" and not _saw_token_limit(tally):
        found.append("declared token_limit, but the gateway saw none")
    elif declared == "time_limit" and not _saw_time_limit(tally, opening):
        found.append("declared time_limit, but the gateway saw none")
    elif declared == "budget" and not any(name for *_, name in tally.final_refusals):
        found.append("declared budget, but the gateway saw none")
    return found


def _saw_token_limit(tally: RunTally) -> bool:
    return any(name.endswith("_tokens") for *_, name in tally.final_refusals) or not tally.outcomes.keys().isdisjoint(("length", "cap_cut"))


def _saw_time_limit(tally: RunTally, opening: Content) -> bool:
    refused = any(code == "window_over" or name.endswith("wall_seconds") for _, _, code, name in tally.final_refusals)
    return refused or _past_deadline(tally, opening)


def _past_deadline(tally: RunTally, opening: Content) -> bool:
    deadline_ms = _deadline_ms(tally, opening)
    late = deadline_ms is not None and tally.closing_at_ms is not None and tally.closing_at_ms > deadline_ms
    return late or "deadline_cut" in tally.outcomes


def _deadline_ms(tally: RunTally, opening: Content) -> int | None:
    """Of the whole run: as it stands in its opening, or so many seconds after its first call was admitted."""
    details = cast(Content, opening.get("details", {}))
    deadline_ms, wall_seconds, first_ms = details.get("deadline_ms"), details.get("wall_seconds"), tally.first_sent_ms
    if isinstance(deadline_ms, int):
        return deadline_ms
    return first_ms + wall_seconds * 1000 if isinstance(wall_seconds, int) and first_ms is not None else None


def campaign_receipt(
    tally: CampaignTally, opening: Content, *, unsettled: Mapping[str, int], head: Mapping[str, object], receipt: int, replaces: Content | None
) -> Body:
    """`unsettled`: runs that have no receipt yet, or something that theirs does not hold, with how many of their calls are open."""
    body: Body = {
        "receipt": receipt,
        "policy_hash": opening["policy_hash"],
        "policy_name": opening["policy_name"],
        "opened_runs": len(tally.runs),
        "runs": [{"run": run, "receipt": line["receipt"], "hash": line["hash"]} for run, line in sorted(tally.receipts.items())],
        "labels": tally.by_label(),
        "unsettled": [{"run": run, "calls": calls} for run, calls in sorted(unsettled.items())],
        "head": dict(head),
    }
    planned = opening.get("planned_runs")
    if isinstance(planned, int):
        body["planned_runs"] = planned
        body["missing_runs"] = max(0, planned - len(tally.runs))  # what did not happen is missing, neither a failure nor a zero
    if named := planned_names(opening):
        body["missing_runs"] = sum(run not in tally.runs for run in named)
        if unplanned := len(tally.runs.keys() - set(named)):
            body["unplanned_runs"] = unplanned
    if replaces is not None:
        body["replaces"] = replaces
    return body


def planned_names(opening: Content) -> list[str]:
    """The runs that a campaign's opening names; empty where it names none."""
    plan = cast(Content, opening.get("details", {})).get("plan", [])
    return [cast(str, row[0]) for row in cast("list[list[object]]", plan)]


def run_tally(history: Iterable[Content]) -> RunTally:
    tally = RunTally()
    for content in history:
        tally.add(content)
    return tally


def campaign_tally(history: Iterable[Content]) -> CampaignTally:
    tally = CampaignTally()
    for content in history:
        tally.add(content)
    return tally


def given_out(content: Content, entry_hash: bytes) -> Body:
    """A receipt as its driver gets and keeps it: the entry whole, with its hash."""
    return {**content, "hash": entry_hash.hex()}
