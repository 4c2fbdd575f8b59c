"""What the agent gets after the settlement: the held end of its answer, or what says truly why there is none."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from gateway.accounting.settling import How
from gateway.accounting.usage import ErrorClass, Outcome
from gateway.dialects.dialect import Reply, Wording
from gateway.proxy.agent_side import AgentSide
from gateway.proxy.calls import Call
from gateway.proxy.cleaning import clean
from gateway.proxy.fault_points import reach
from gateway.proxy.refused import limit_numbers
from gateway.proxy.refusing import ENGINE_DIED, ENGINE_ERROR, UPSTREAM_AUTH, cut_wording, engine_wording
from gateway.proxy.under_way import UnderWay


async def end_answer(call: Call, reservation: UnderWay, agent: AgentSide) -> web.StreamResponse:
    reach("settled")
    if reservation.not_delivered:
        agent.abort()
        return await agent.end(b"")
    ending = reservation.ending
    if ending.how is How.CUT and ending.cut is Outcome.CAP_CUT:
        return await _length_end(call, reservation, agent)
    if ending.how is How.CUT and ending.cut is not None:
        return await _error_end(call, reservation, agent, cut_wording(ending.cut))
    if reservation.failure is not None and (reservation.relay is None or not reservation.relay.terminal):
        return await _error_end(call, reservation, agent, engine_wording(reservation.failure))
    return await _engine_end(call, reservation, agent)


async def _length_end(call: Call, reservation: UnderWay, agent: AgentSide) -> web.StreamResponse:
    assert reservation.meter is not None and reservation.terms is not None
    reading = reservation.meter.reading(reservation.status, truncated=True)
    return await agent.end(call.dialect.length_end(reading, call.request, reservation.terms.usage))


async def _error_end(call: Call, reservation: UnderWay, agent: AgentSide, wording: Wording) -> web.StreamResponse:
    relay, meter = reservation.relay, reservation.meter
    if relay is not None and relay.passed and meter is not None and not meter.streams:
        agent.abort()  # a part of a body too large to hold is out: only a broken connection tells the truth
    if agent.opened:
        return await agent.end(call.dialect.error_event(wording))
    status = call.policy.agent.refusal_status.get(call.dialect.name)
    reply = call.dialect.reply(wording)
    if status is not None and wording.code in ("run_closed", "run_budget_reached"):
        reply = Reply(status, reply.body, reply.headers, reply.content_type)
    return await agent.reply(reply, _limit_headers(call, reservation))


def _limit_headers(call: Call, reservation: UnderWay) -> Mapping[str, str]:
    """Where a limit cut the call: its name and numbers at that moment."""
    by = reservation.handle.cut_by
    if by is None or reservation.ending.cut is not Outcome.DEADLINE_CUT:
        return {}
    return {"x-gateway-limit": by.name, **(limit_numbers(by) if call.policy.agent.tell_agent else {})}


async def _engine_end(call: Call, reservation: UnderWay, agent: AgentSide) -> web.StreamResponse:
    """The engine ended its answer itself, well or not."""
    meter, relay = reservation.meter, reservation.relay
    assert meter is not None and relay is not None
    reading = reservation.reading or meter.reading(reservation.status, truncated=reservation.failure is not None)
    held = relay.rest(reading.completed)
    if agent.opened and not meter.streams and not relay.passed:  # a comment has spent the status, and this is no stream
        return await _error_end(call, reservation, agent, ENGINE_ERROR)
    if reservation.status in (401, 403):
        return await _error_end(call, reservation, agent, UPSTREAM_AUTH)
    if not 200 <= reservation.status < 300:
        return await agent.end(clean(held))
    if meter.streams and reading.error_class in (ErrorClass.TRUNCATED, ErrorClass.EMPTY_STREAM):
        return await _error_end(call, reservation, agent, ENGINE_DIED)
    if meter.streams and agent.opened and reading.error_class is not None and not held:  # an error that is no event: nobody would see it
        return await _error_end(call, reservation, agent, ENGINE_ERROR)
    if reading.error_class is not None and not agent.opened:
        return await _plain_error(call, agent, held, reading.error_code)
    return await agent.end(clean(held) if reading.error_class is not None else held)


async def _plain_error(call: Call, agent: AgentSide, held: bytes, code: int | None) -> web.StreamResponse:
    """An error as the first event, or as the body, of a 200: a plain answer with its code, 502 where it has none."""
    wording = ENGINE_ERROR
    status = code if code is not None and 400 <= code <= 599 else 502
    reply = call.dialect.reply(wording)
    body = clean(held)
    lines = (line.removeprefix(b"data:").strip() for line in body.splitlines())
    whole = next((line for line in lines if line.startswith(b"{") and line.endswith(b"}")), reply.body)
    return await agent.reply(Reply(status, whole, reply.headers))
