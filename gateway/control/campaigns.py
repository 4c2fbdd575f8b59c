"""Handlers of campaigns. Each may be repeated by a driver whose reply was lost."""

from __future__ import annotations

import asyncio

from aiohttp import web

from gateway.control.bodies import CloseCampaignBody, OpenCampaignBody, ReasonBody, read
from gateway.control.problems import Problem
from gateway.control.services import SERVICES, ControlServices
from gateway.control.views import answer, campaign_view, limit_left_view, receipt_view
from gateway.ids import NAME
from gateway.policy.loading import LoadedPolicy, load_policy


async def open_campaign(request: web.Request) -> web.Response:
    services = request.app[SERVICES]
    body = await read(request, OpenCampaignBody)
    loaded = await asyncio.to_thread(_load, services, body.policy)
    campaign, created = await services.runs.open_campaign(body.campaign, loaded, body.planned)
    return answer({**campaign_view(campaign, services.runs.in_flight), "created": created}, 201 if created else 200)


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


def _load(services: ControlServices, name: str) -> LoadedPolicy:
    """A name, not a path: a driver can't make the gateway read any file."""
    name = name.removesuffix(".toml")
    path = services.policies / f"{name}.toml"
    if not NAME.fullmatch(name) or not path.is_file():
        there = ", ".join(sorted(file.stem for file in services.policies.glob("*.toml"))) or "none"
        raise Problem(404, "not_found", f"There is no policy {name!r}.", f"{services.policies} has: {there}.", "Name one of these, or put the file there.")
    loaded = load_policy(path)
    services.check_policy(loaded)
    return loaded
