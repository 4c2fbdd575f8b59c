"""Keeps the bodies of a call where its policy says so: the request as received and as sent, and the answer as its agent got it."""

from __future__ import annotations

from gateway.capture.answers import AnswerTape
from gateway.proxy.agent_side import AgentSide
from gateway.proxy.calls import Call
from gateway.services import Services


def begin_capture(call: Call, sent: bytes, agent: AgentSide, services: Services) -> None:
    """Once the call is reserved, before it is sent."""
    if not call.identity.campaign.policy.capture:
        return
    received = call.received.raw
    services.keeper.keep(received)
    if sent != received:
        services.keeper.keep(sent)
    agent.tape = AnswerTape()


def end_capture(call: Call, agent: AgentSide, services: Services) -> None:
    if agent.tape is not None:
        services.keeper.keep_answer(call.call_id, agent.tape)
