"""Requests that do no model work (tokenize, detokenize, count_tokens): no call, no slot, no row, nothing charged; one at a time in a run, and so many at most.

They are read and guarded as calls are; what the engine answers goes out whole, cleaned where it is an error.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from gateway.accounting.limit import Shortfall
from gateway.dialects import DIALECTS, UTILITIES
from gateway.dialects.barred import Allowed
from gateway.dialects.dialect import BodyError, Reply
from gateway.dialects.openai_replies import reply as openai_reply
from gateway.dialects.received import write
from gateway.dialects.stripping import strip
from gateway.errors import EngineFailure
from gateway.proxy.agent_headers import check_headers
from gateway.proxy.agent_side import AgentSide
from gateway.proxy.body import BodyBounds, parse_body, read_body
from gateway.proxy.calls import Route, declared_models
from gateway.proxy.cleaning import clean
from gateway.proxy.may_call import check_in_time, check_open
from gateway.proxy.refusing import ENGINE_ERROR, UPSTREAM_AUTH, engine_wording
from gateway.proxy.serving import may_serve
from gateway.runs.keys import Identity
from gateway.services import Services
from gateway.upstream.call import Refusal, Refused
from gateway.upstream.forward import Upstream

LIMIT = "agent.utility_calls"


async def ask(request: web.BaseRequest, route: Route, services: Services, agent: AgentSide) -> web.StreamResponse:
    """Raises Refused, BodyError, BodyRefused."""
    identity, utility = route.identity, UTILITIES[route.api]
    check_open(services, identity)
    check_in_time(services, identity)
    _check_count(identity)
    guard, bounds = identity.campaign.policy.guard, services.settings.bounds
    check_headers(request.headers, guard.stripped)
    limits = BodyBounds(max_bytes=bounds.max_body_bytes, max_depth=bounds.max_depth, max_keys=bounds.max_keys, read_seconds=bounds.body_seconds)
    body, _ = strip(parse_body(await read_body(request, limits), limits), utility.form, guard.stripped, guard.allowed)
    models = declared_models(services, identity)
    model = utility.read(body, Allowed(guard.allowed, bounds.max_inline_bytes)) or (models[0] if len(models) == 1 else "")
    upstream = _upstream_for(services, identity, model, route.api)
    own = services.settings.upstreams[upstream.name].models[model]
    _check_count(identity)
    services.metrics.utility_calls.labels(route.api).inc()
    async with identity.run.utilities.turn():
        check_open(services, identity)
        return await agent.reply(await _answer(upstream, route.api, utility.forward(body, own, upstream.engine.strip_fields - guard.allowed_fields)))


def _check_count(identity: Identity) -> None:
    utilities, ceiling = identity.run.utilities, identity.campaign.policy.agent.utility_calls
    if utilities.asked >= ceiling:
        shortfall = Shortfall(name=LIMIT, ceiling=ceiling, settled=utilities.asked, reserved=0, asked=1)
        raise Refused(Refusal(code="run_budget_reached", final=True, shortfall=shortfall))
    if utilities.crowded:
        raise Refused(Refusal(code="busy", final=False))


def _upstream_for(services: Services, identity: Identity, model: str, api: str) -> Upstream:
    serving = services.settings.serving(model) if model in identity.campaign.policy.models_of(identity.lane) else ()
    found = [upstream for name in serving if api in (upstream := services.engines.upstreams[name]).engine.utilities]
    for upstream in found:
        if may_serve(services, identity.campaign.policy, upstream.name, model):
            return upstream
    if found:
        raise Refused(Refusal(code="engine_unavailable", final=False))
    raise BodyError("model_not_found", "This model is not served by this API." if serving else "There is no such model here.", "model")


async def _answer(upstream: Upstream, api: str, body: dict[str, Any]) -> Reply:
    form = DIALECTS.get(UTILITIES[api].form)
    worded = form.reply if form is not None else openai_reply
    try:
        status, answer = await upstream.post_json(upstream.engine.utilities[api], body)
    except EngineFailure as failure:
        return worded(engine_wording(failure))
    if status in (401, 403):
        return worded(UPSTREAM_AUTH)
    if not isinstance(answer, dict | list) or 300 <= status < 400:
        return worded(ENGINE_ERROR)
    try:
        raw = write(answer)
    except (ValueError, RecursionError):  # no JSON can say it
        return worded(ENGINE_ERROR)
    return Reply(status, raw if status < 300 else clean(raw))
