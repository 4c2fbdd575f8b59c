"""Handlers of runs and keys. A secret is in the answer that issues it and nowhere else."""

from __future__ import annotations

from aiohttp import web

from gateway.control.bodies import CloseRunBody, IssueKeyBody, OpenRunBody, ReasonBody, read
from gateway.control.services import SERVICES
from gateway.control.views import answer, deadline_view, key_view, opened_view, receipt_view, run_view
from gateway.runs.budget import limit_left_view
from gateway.runs.plan import Made


async def open_run(request: web.Request) -> web.Response:
    body = await read(request, OpenRunBody)
    opened = await request.app[SERVICES].runs.open_run(
        request.match_info["campaign"],
        body.run,
        task=body.task,
        label=body.label,
        lanes=body.lanes,
        idempotency_key=body.idempotency_key,
        made=Made(repeat=body.repeat, pins=body.pins),
    )
    return answer(opened_view(opened), 201 if opened.created else 200)


async def list_runs(request: web.Request) -> web.Response:
    runs = request.app[SERVICES].runs
    campaign = runs.campaign(request.match_info["campaign"])
    return answer({"runs": [run_view(run, runs.in_flight, runs.overdue(run.campaign, run.run)) for run in campaign.runs.values()]})


async def show_run(request: web.Request) -> web.Response:
    runs = request.app[SERVICES].runs
    run = runs.run(request.match_info["campaign"], request.match_info["run"])
    view = run_view(run, runs.in_flight, runs.overdue(run.campaign, run.run))
    view["deadlines"] = [deadline_view(deadline) for deadline in runs.deadlines(run.campaign, run.run)]
    view["keys"] = [key_view(key) for key in runs.keys(run.campaign, run.run)]
    view["limits"] = [limit_left_view(found) for found in runs.limits(run.campaign, run.run)]
    return answer(view)


async def close_run(request: web.Request) -> web.Response:
    """Answers when the receipt is written: after the last call was cut, or has ended by itself, and is settled."""
    body = await read(request, CloseRunBody)
    receipt = await request.app[SERVICES].runs.close_run(
        request.match_info["campaign"], request.match_info["run"], results=body.results.results(), drain_s=body.drain_seconds, reason=body.reason
    )
    return answer(receipt_view(receipt))


async def issue_key(request: web.Request) -> web.Response:
    body = await read(request, IssueKeyBody)
    issued = await request.app[SERVICES].runs.issue_key(body.campaign, body.run, body.lane)
    return answer({"key_id": issued.key_id, "campaign": issued.campaign, "run": issued.run, "lane": issued.lane, "key": issued.secret}, 201)


async def revoke_key(request: web.Request) -> web.Response:
    body = await read(request, ReasonBody)
    return answer(key_view(await request.app[SERVICES].runs.revoke_key(request.match_info["key_id"], body.reason)))


async def list_keys(request: web.Request) -> web.Response:
    runs = request.app[SERVICES].runs
    campaign, run = request.query.get("campaign", ""), request.query.get("run", "")
    if campaign:  # a name that is misspelt must not look like a run without keys
        runs.run(campaign, run) if run else runs.campaign(campaign)
    return answer({"keys": [key_view(key) for key in runs.keys(campaign, run)]})
