"""The one place that answers what was not admitted: on record, in the metrics, and to the agent in its own dialect."""

from __future__ import annotations

import time
from collections.abc import Mapping

from aiohttp import web

from gateway.accounting.commands import Refuse
from gateway.accounting.limit import Shortfall
from gateway.dialects.dialect import BodyError, Reply, ReplyKind, Wording
from gateway.logs import log
from gateway.proxy.agent_side import AgentSide
from gateway.proxy.body import BodyRefused
from gateway.proxy.call_log import log_refused
from gateway.proxy.calls import Route, Unauthorized, Undeclared
from gateway.proxy.forms import worded_for_api, worded_for_path
from gateway.proxy.refusing import UNAUTHORIZED, UNDECLARED, guard_wording, refusal_wording
from gateway.services import Services
from gateway.upstream.call import Refusal, Refused

REFUSALS = (Refused, BodyError, BodyRefused)
INTERNAL = Wording(kind=ReplyKind.UNAVAILABLE, code="internal_error", message="The gateway failed on this call; nothing more is known.", status=500)


async def refuse(error: Exception, route: Route | None, services: Services, agent: AgentSide) -> web.StreamResponse:
    match error:
        case Unauthorized():
            services.metrics.unauthorized.inc()
            return await agent.reply(worded_for_path(agent.target, UNAUTHORIZED))
        case Undeclared():
            services.metrics.undeclared.inc()
            return await agent.reply(worded_for_path(agent.target, UNDECLARED))
        case Refused():
            refusal = error.refusal
        case BodyError() | BodyRefused():
            refusal = Refusal(code=error.code, final=True, field_name=getattr(error, "field_name", ""))
        case _:
            log.error("a call failed inside the gateway", exc_info=error)
            return await agent.reply(worded_for_path(agent.target, INTERNAL) if route is None else worded_for_api(route.api, INTERNAL))
    assert route is not None, "only a request with a route is refused by name"
    services.metrics.refusals.labels(refusal.code).inc()
    if refusal.shortfall is not None and refusal.final:
        services.metrics.limit_refusals.labels(refusal.shortfall.name).inc()
    _record(refusal, route, services, agent)
    tell = route.identity.campaign.policy.agent.tell_agent
    return await agent.reply(_worded(error, refusal, route), _limit_headers(refusal, tell))


def _worded(error: Exception, refusal: Refusal, route: Route) -> Reply:
    told = route.identity.campaign.policy.agent
    status = told.refusal_status.get(route.api)
    wording = guard_wording(error) if isinstance(error, BodyError | BodyRefused) else refusal_wording(refusal, status, tell=told.tell_agent)
    return worded_for_api(route.api, wording)


def _record(refusal: Refusal, route: Route, services: Services, agent: AgentSide) -> None:
    """On record while the run is open; afterwards refusals are metrics and log lines only. Nobody waits for it: a refusal holds nothing."""
    identity = route.identity
    log_refused(refusal, route, agent.call_id)
    if not identity.live or refusal.code == "ledger_unavailable":
        return
    posted = services.ledger.post(
        Refuse(
            call_id=agent.call_id,
            at_ms=services.ledger.now_ms(),
            campaign=identity.campaign.campaign,
            run=identity.run.run,
            lane=identity.lane,
            model=route.model,
            code=refusal.code,
            final=refusal.final,
            limit=refusal.shortfall,
            waited_ms=refusal.waited_ms,
            field_name=refusal.field_name,
        )
    )
    posted.add_done_callback(lambda future: future.cancelled() or future.exception())


def _limit_headers(refusal: Refusal, tell: bool) -> Mapping[str, str]:
    headers = {}
    if refusal.waited_ms:
        headers["x-gateway-waited-ms"] = str(refusal.waited_ms)
    shortfall = refusal.shortfall
    if shortfall is not None:
        headers["x-gateway-limit"] = shortfall.name
        if tell:
            headers |= limit_numbers(shortfall)
    return headers


def limit_numbers(shortfall: Shortfall) -> Mapping[str, str]:
    numbers = {
        "x-gateway-ceiling": str(shortfall.ceiling),
        "x-gateway-settled": str(shortfall.settled),
        "x-gateway-reserved": str(shortfall.reserved),
        "x-gateway-asked": str(shortfall.asked),
    }
    if shortfall.resets_at_ms is not None:
        numbers["x-gateway-resets-at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(shortfall.resets_at_ms / 1000))
    return numbers
