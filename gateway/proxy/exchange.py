"""The whole walk of a call, wire in to settled. Start reading here.

What is refused on the way is raised as a value and answered in one place, `answer`; how an engine failed is no exception of ours but how the call ended.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from gateway.dialects import UTILITIES
from gateway.dialects.anthropic_replies import models_reply as anthropic_models
from gateway.dialects.dialect import Reply
from gateway.dialects.native_replies import tags_reply
from gateway.dialects.openai_replies import models_reply
from gateway.proxy.agent_side import AgentSide
from gateway.proxy.calls import MODELS, TOLD, Call, Route, Unauthorized, Undeclared, declared_models, find_route, read_call
from gateway.proxy.capturing import begin_capture, end_capture
from gateway.proxy.ending import end_answer
from gateway.proxy.keepalive import KeepAlive
from gateway.proxy.may_call import check_open
from gateway.proxy.refused import REFUSALS, refuse
from gateway.proxy.reservation import Admitted, Reservation
from gateway.proxy.telling import tell
from gateway.proxy.utility import ask
from gateway.services import Services


async def exchange(request: web.BaseRequest, route: Route, services: Services, agent: AgentSide) -> web.StreamResponse:
    call = await read_call(request, services, route, agent.call_id)  # identify, route, guard; nothing written
    try:
        async with Admitted(call, services) as reservation:  # waits holding nothing; slot + all limits in one step ... settled, durable
            agent.headers |= reservation.warning
            begin_capture(call, reservation.sent, agent, services)
            await carry(call, reservation, agent, services)
        return await end_answer(call, reservation, agent)  # now the agent may know that it has ended
    finally:
        end_capture(call, agent, services)


async def carry(call: Call, reservation: Reservation, agent: AgentSide, services: Services) -> None:
    """The engine's side. A call that does not stream, on an engine that would not stop, goes on without the agent that left it."""
    work = reservation.forward_and_relay(agent)
    if call.request.stream and call.request.json_lines:
        await reservation.attached(work)  # a comment would be no line of JSON
    elif call.request.stream:
        with KeepAlive(agent, services.settings.bounds.keepalive_after_s, services.background):
            await reservation.attached(work)
    elif call.engine.cancels_whole:
        await reservation.attached(work)
    else:
        await reservation.detached(work)


def _models(request: web.BaseRequest, route: Route, services: Services) -> Reply:
    """In the form that the path or, where two formats share it, a header of the other asks for."""
    names = declared_models(services, route.identity)
    if route.api == "ollama.tags":
        return tags_reply(names)
    return anthropic_models(names) if "anthropic-version" in request.headers else models_reply(names)


async def answer(request: web.BaseRequest, services: Services) -> web.StreamResponse:
    """Every request of the data listener. Raises nothing but cancellation."""
    agent = AgentSide(request)
    route: Route | None = None
    try:
        route = find_route(request, services)
        if route.api in TOLD.values():
            return await tell(request, route, services, agent)
        if route.api in MODELS:
            check_open(services, route.identity)
            return await agent.reply(_models(request, route, services))
        if route.api in UTILITIES:
            return await ask(request, route, services, agent)
        return await exchange(request, route, services, agent)
    except (*REFUSALS, Unauthorized, Undeclared) as error:
        return await refuse(error, route, services, agent)
    except asyncio.CancelledError:
        raise
    except Exception as error:
        return await refuse(error, route, services, agent)
