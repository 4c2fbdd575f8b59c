"""What a person sees at a glance: what runs, what waits and for what, what is left of each limit, what was refused. Each list is bounded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final, cast

from gateway.accounting.limit import Scope
from gateway.control.reading import process_view, read_aside
from gateway.control.services import ControlServices
from gateway.control.views import campaign_view, deadline_view, run_view
from gateway.ledger.explaining import CODES
from gateway.ledger.state import CampaignStanding, RunStanding
from gateway.reports.history import refusal_row
from gateway.runs.budget import limit_left_view
from gateway.runs.campaigns import CampaignState, RunState
from gateway.runs.left import LimitLeft

View = dict[str, object]

CAMPAIGNS_SHOWN: Final = 20
RUNS_SHOWN: Final = 100
REFUSALS_SHOWN: Final = 20
AT_ONCE: Final = 10
"""Runs between two of which others have their turn: half a millisecond."""

_Lane = tuple[str, str]


async def overview(services: ControlServices) -> View:
    refused = await read_aside(services, lambda reader: reader.last_refusals(REFUSALS_SHOWN))
    campaigns = _latest(services)
    runs = _live(services, campaigns)
    working = _by_lane(services)
    limits = {campaign.campaign: services.runs.limits(campaign.campaign) for campaign in campaigns if not campaign.policy_problem}
    return {
        **process_view(services),
        "campaigns": [_campaign(services, campaign, working, limits.get(campaign.campaign, ())) for campaign in campaigns],
        "limits": list({found.limit.name: scoped_view(found) for of in limits.values() for found in of if found.limit.account.scope is Scope.GATEWAY}.values()),
        "runs": [view async for view in _runs(services, runs[:RUNS_SHOWN])],
        "runs_not_shown": max(0, len(runs) - RUNS_SHOWN),
        "refusals": [worded(refusal_row(content)) for content in refused],
    }


def scoped_view(found: LimitLeft) -> View:
    """A limit with what it is over."""
    account = found.limit.account
    view: View = {**limit_left_view(found), "scope": account.scope, "quantity": account.quantity}
    parts = {"lane": account.lane, "model": account.model, "window": account.window}
    return view | {name: part for name, part in parts.items() if part}


def worded(refusal: View) -> View:
    why = CODES.get(cast(str, refusal["code"]))
    return {**refusal, "why": why} if why else refusal


def live_run(services: ControlServices, campaign: str, run: str) -> View:
    """One run as it stands at this moment. Raises Declined where there is none."""
    runs = services.runs
    state = runs.run(campaign, run)
    view = run_view(state, runs.in_flight, runs.overdue(campaign, run))
    view["deadlines"] = [deadline_view(deadline) for deadline in runs.deadlines(campaign, run)]
    view["limits"] = [scoped_view(found) for found in runs.limits(campaign, run)]
    waiting = cast("Iterable[Mapping[str, object]]", services.gate_view().get("calls", ()))
    view["waiting"] = [dict(call) for call in waiting if (call["campaign"], call["run"]) == (campaign, run)]
    view["now_ms"] = services.ledger.now_ms()
    return view


def _latest(services: ControlServices) -> list[CampaignState]:
    """Those that serve or close, then those that were opened last."""
    ordered = sorted(services.runs.campaigns(), key=lambda campaign: (campaign.state is CampaignStanding.CLOSED, -campaign.opened_at_ms))
    return ordered[:CAMPAIGNS_SHOWN]


def _live(services: ControlServices, campaigns: Iterable[CampaignState]) -> list[RunState]:
    """Open and closing runs: those with calls first, then those that were opened last."""
    in_flight = services.runs.in_flight
    runs = [run for campaign in campaigns for run in campaign.runs.values() if run.state is not RunStanding.CLOSED]
    return sorted(runs, key=lambda run: (not in_flight.count(run.campaign, run.run), -run.opened_at_ms))


def _by_lane(services: ControlServices) -> Counter[_Lane]:
    """Calls in flight, those that wait included."""
    keys = (services.runs.key(call.key_id) for call in services.runs.in_flight.calls())
    return Counter((key.campaign.campaign, key.lane) for key in keys if key is not None)


def _campaign(services: ControlServices, campaign: CampaignState, working: Counter[_Lane], limits: Iterable[LimitLeft]) -> View:
    view = campaign_view(campaign, services.runs.in_flight, services.runs.span(campaign), over=services.runs.over(campaign))
    view.pop("missing", None)
    if campaign.policy_problem:
        return view
    policy = campaign.policy
    view["lanes"] = [{"lane": lane, "models": list(policy.models_of(lane)), "in_flight": working[campaign.campaign, lane]} for lane in policy.lane_names]
    view["limits"] = [scoped_view(found) for found in limits if found.limit.account.scope is Scope.CAMPAIGN]
    return view


async def _runs(services: ControlServices, runs: Iterable[RunState]) -> AsyncIterator[View]:
    """A few at a time: calls go on between them."""
    for count, run in enumerate(runs, 1):
        yield _run(services, run)
        if count % AT_ONCE == 0:
            await asyncio.sleep(0)


def _run(services: ControlServices, run: RunState) -> View:
    view = run_view(run, services.runs.in_flight, services.runs.overdue(run.campaign, run.run))
    limits = services.runs.limits(run.campaign, run.run)
    view["limits"] = [scoped_view(found) for found in limits if found.limit.account.scope is Scope.RUN]
    view["deadlines"] = [deadline_view(deadline) for deadline in services.runs.deadlines(run.campaign, run.run)]
    return view
