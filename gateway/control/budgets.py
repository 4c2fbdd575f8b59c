"""Handlers of what people and drivers ask before a run, during it and after: its budget, a preflight, why a call went as it did, the policies at hand."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from gateway.control.bodies import PreflightBody, read
from gateway.control.problems import Problem
from gateway.control.reading import from_ledger
from gateway.control.services import SERVICES
from gateway.control.views import answer
from gateway.errors import NotFound

WRITTEN_WITHIN_S: Final = 0.5


async def run_budget(request: web.Request) -> web.Response:
    runs = request.app[SERVICES].runs
    return answer(runs.budget(request.match_info["campaign"], request.match_info["run"], request.query.get("lane", "")))


async def preflight(request: web.Request) -> web.Response:
    """A difference is an error, so that a driver that looks at the status alone stops."""
    runs = request.app[SERVICES].runs
    body = await read(request, PreflightBody)
    campaign, run = request.match_info["campaign"], request.match_info["run"]
    unlike = await runs.preflight(campaign, run, body.expect, body.lane)
    if unlike:
        cause = "; ".join(each.words for each in unlike) + "."
        differences = [each.view() for each in unlike]
        problem = f"Not all is as expected of run {campaign}/{run}."
        raise Problem(409, "preflight_failed", problem, cause, "Expect what holds, or open a campaign under another policy.", more={"differences": differences})
    return answer({"passed": True, "differences": []})


async def explain(request: web.Request) -> web.Response:
    """Nobody waits for a refusal to be written: one that was only just answered may stand a moment later."""
    call = request.match_info["call"]
    try:
        return answer(await from_ledger(request, lambda reader: reader.explain(call)))
    except NotFound:
        await asyncio.sleep(WRITTEN_WITHIN_S)
        return answer(await from_ledger(request, lambda reader: reader.explain(call)))


async def reload_policies(request: web.Request) -> web.Response:
    return answer((await request.app[SERVICES].shelf.reload()).view())
