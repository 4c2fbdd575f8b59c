"""Handlers of campaigns. Each may be repeated by a driver whose reply was lost."""

from __future__ import annotations

from aiohttp import web

from gateway.control.bodies import CloseCampaignBody, OpenCampaignBody, ReasonBody, read
from gateway.control.problems import Problem
from gateway.control.services import SERVICES
from gateway.control.views import answer, campaign_view, receipt_view
from gateway.runs.budget import limit_left_view


async def open_campaign(request: web.Request) -> web.Response:
    services = request.app[SERVICES]
    body = await read(request, OpenCampaignBody)
    if body.plan and body.planned not in (None, len(body.plan)):
        cause = f"The plan has {len(body.plan)} runs, and {body.planned} are said to be planned."
        raise Problem(400, "invalid", "planned and plan contradict each other.", cause, "Leave planned out.")
    taken = await services.shelf.take(body.policy)
    campaign, created = await services.runs.open_campaign(body.campaign, taken.loaded, body.planned, body.planned_runs())
    view = {**campaign_view(campaign, services.runs.in_flight), "created": created, **({"note": taken.note} if taken.note else {})}
    return answer(view, 201 if created else 200)


async def list_campaigns(request: web.Request) -> web.Response:
    runs = request.app[SERVICES].runs
    return answer({"campaigns": [campaign_view(campaign, runs.in_flight, runs.span(campaign), over=runs.over(campaign)) for campaign in runs.campaigns()]})


async def show_campaign(request: web.Request) -> web.Response:
    runs = request.app[SERVICES].runs
    campaign = runs.campaign(request.match_info["campaign"])
    limits = [limit_left_view(found) for found in runs.limits(campaign.campaign)]
    return answer({**campaign_view(campaign, runs.in_flight, runs.span(campaign), over=runs.over(campaign)), "limits": limits})


async def halt(request: web.Request) -> web.Response:
    """Nothing is cancelled: what runs is shown."""
    runs = request.app[SERVICES].runs
    body = await read(request, ReasonBody)
    return answer(campaign_view(await runs.halt(request.match_info["campaign"], body.reason), runs.in_flight))


async def resume(request: web.Request) -> web.Response:
    runs = request.app[SERVICES].runs
    body = await read(request, ReasonBody)
    return answer(campaign_view(await runs.resume(request.match_info["campaign"], body.reason), runs.in_flight))


async def close_campaign(request: web.Request) -> web.Response:
    services = request.app[SERVICES]
    body = await read(request, CloseCampaignBody)
    close_s = services.close_s if body.close_seconds is None else body.close_seconds
    receipt = await services.runs.close_campaign(request.match_info["campaign"], close_s=close_s, drain_s=body.drain_seconds)
    return answer(receipt_view(receipt))
