"""What stands, as JSON. Unknown is an absent key, never null; a secret is never in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import orjson
from aiohttp import web

from gateway.accounting.commands import Results
from gateway.ledger.state import RunStanding
from gateway.runs.campaigns import CampaignState, RunState
from gateway.runs.closing import Receipt
from gateway.runs.deadlines import Deadline
from gateway.runs.in_flight import InFlight
from gateway.runs.keys import Identity
from gateway.runs.opening import OpenedRun


def answer(value: object, status: int = 200) -> web.Response:
    return web.json_response(body=orjson.dumps(value, default=dict), status=status)


def campaign_view(campaign: CampaignState, in_flight: InFlight, span: Deadline | None = None, *, over: bool = False) -> dict[str, object]:
    """Where its span is `over`, what still runs is listed: it goes on, and is not settled yet."""
    states = Counter(run.state for run in campaign.runs.values())
    view: dict[str, object] = {
        "campaign": campaign.campaign,
        "state": campaign.state,
        "policy": campaign.policy_name,
        "policy_hash": campaign.policy_hash,
        **({"limits_hash": campaign.limits_hash} if not campaign.policy_problem else {"policy_problem": campaign.policy_problem}),
        "opened_at_ms": campaign.opened_at_ms,
        "runs": {str(state): states[state] for state in RunStanding},
        "in_flight": sum(in_flight.count(campaign.campaign, run) for run in campaign.runs),
    }
    if campaign.planned_runs is not None:
        view["planned"] = campaign.planned_runs
    if campaign.plan:
        view["missing"] = [planned.run for planned in campaign.plan if planned.run not in campaign.runs]
    if campaign.reason:
        view["reason"] = campaign.reason
    if span is not None:
        view |= {"span_ends_at_ms": span.at_ms, "over": over}
    if over:
        view["unsettled"] = [{"run": run, "calls": calls} for run in campaign.runs if (calls := in_flight.count(campaign.campaign, run))]
    return view


def run_view(run: RunState, in_flight: InFlight, overdue: Sequence[Deadline] = ()) -> dict[str, object]:
    """`overdue`: the walls that it has passed though it is open."""
    view: dict[str, object] = {
        "campaign": run.campaign,
        "run": run.run,
        "state": run.state,
        "opened_at_ms": run.opened_at_ms,
        "in_flight": in_flight.count(run.campaign, run.run),
    }
    named = {"label": run.label, "task": run.task, "idempotency_key": run.idempotency_key}
    view |= {name: text for name, text in named.items() if text}
    view |= {name: value for name, value in (("repeat", run.made.repeat), ("pins", dict(run.made.pins))) if value}
    if overdue:
        view["overdue"] = [wall.limit_name for wall in overdue]
    if run.results is not None:
        view["results"] = results_view(run.results)
    return view


def deadline_view(deadline: Deadline) -> dict[str, object]:
    view: dict[str, object] = {
        "name": deadline.limit_name,
        "ceiling": deadline.ceiling_s,
        "started_at_ms": deadline.started_ms,
        "ends_at_ms": deadline.at_ms,
    }
    if deadline.origin:
        view["origin"] = deadline.origin
    return view


def results_view(results: Results) -> dict[str, object]:
    view: dict[str, object] = {}
    if results.exit is not None:
        view["exit"] = results.exit
    if results.turn_end:
        view["turn_end"] = results.turn_end
    if results.judge:
        view["judge"] = results.judge
    if results.outcomes:
        view["outcomes"] = dict(results.outcomes)
    return view


def opened_view(opened: OpenedRun) -> dict[str, object]:
    """The one answer that carries secrets."""
    view: dict[str, object] = {
        "campaign": opened.campaign,
        "run": opened.run,
        "keys": dict(opened.keys),
        "key_ids": dict(opened.key_ids),
        "created": opened.created,
    }
    if opened.note:
        view["note"] = opened.note
    return view


def key_view(key: Identity) -> dict[str, object]:
    return {
        "key_id": key.key_id,
        "campaign": key.campaign.campaign,
        "run": key.run.run,
        "lane": key.lane,
        "issued_at_ms": key.issued_at_ms,
        "revoked": key.revoked,
        "live": key.live,
    }


def receipt_view(receipt: Receipt) -> Mapping[str, object]:
    return {"receipt": dict(receipt.content), "conflicts": list(receipt.conflicts)}
