"""What an agent, or its driver with the agent's key, may ask: its budget, and whether its limits are what it believes (a preflight). No call, no engine.

The rule: the key's own run and no other; with `tell_agent = false` neither path exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson
from aiohttp import web

from gateway.dialects.dialect import Reply, ReplyKind, Wording
from gateway.dialects.openai_replies import reply as openai_reply
from gateway.dialects.received import write
from gateway.errors import ClockUncertain, LedgerUnavailable
from gateway.proxy.agent_side import AgentSide
from gateway.proxy.body import BodyBounds, BodyRefused, parse_body, read_body
from gateway.proxy.calls import BUDGET, Route
from gateway.proxy.may_call import check_open
from gateway.proxy.refusing import guard_wording, refusal_wording
from gateway.runs.beliefs import Difference, Value
from gateway.runs.declined import Declined
from gateway.services import Services
from gateway.upstream.call import Refusal, Refused

BOUNDS: Final = BodyBounds(max_bytes=64 * 1024, max_depth=4, max_keys=500, read_seconds=20.0)
NAME_MAX: Final = 200
"""Characters of a name or a value."""
FAILED: Final = Wording(kind=ReplyKind.GUARD, code="preflight_failed", message="Not all limits are as expected.", status=409)


async def tell(request: web.BaseRequest, route: Route, services: Services, agent: AgentSide) -> web.StreamResponse:
    """Also a key that is revoked, or of a closed run, hears its budget."""
    identity = route.identity
    try:
        if route.api == BUDGET:
            budget = services.runs.budget(identity.campaign.campaign, identity.run.run, identity.lane, short=True)
            return await agent.reply(Reply(200, write({**budget, "live": identity.live})))
        check_open(services, identity)
        expected = expectation(parse_body(await read_body(request, BOUNDS), BOUNDS))
        check_open(services, identity)  # reading took its time
        unlike = await services.runs.preflight(identity.campaign.campaign, identity.run.run, expected, identity.lane)
    except Refused as error:
        return await agent.reply(openai_reply(refusal_wording(error.refusal, identity.campaign.policy.agent.refusal_status.get("openai.chat"))))
    except BodyRefused as error:
        return await agent.reply(openai_reply(guard_wording(error)))
    except Declined as error:
        return await agent.reply(openai_reply(guard_wording(BodyRefused("body_invalid", error.problem))))
    except (LedgerUnavailable, ClockUncertain) as error:
        code = "clock" if isinstance(error, ClockUncertain) else "ledger_unavailable"
        return await agent.reply(openai_reply(refusal_wording(Refusal(code=code, final=False))))
    return await agent.reply(failed(unlike) if unlike else Reply(200, write({"passed": True, "differences": []})))


def failed(unlike: tuple[Difference, ...]) -> Reply:
    """An error like any other, and beside it each difference."""
    plain = openai_reply(FAILED)
    error = orjson.loads(plain.body)
    return Reply(plain.status, write({**error, "passed": False, "differences": [each.view() for each in unlike]}), plain.headers)


def expectation(body: Mapping[str, object]) -> dict[str, Value]:
    """`{"expect": {name: value}}`, and nothing beside it. Raises BodyRefused."""
    expect = body.get("expect")
    if not isinstance(expect, Mapping) or len(body) != 1:
        raise BodyRefused("body_invalid", "A preflight is an object with one member, expect: names of limits and what they should be.")
    if not expect:
        raise BodyRefused("body_invalid", "This preflight expects nothing.")
    found: dict[str, Value] = {}
    for name, value in expect.items():
        if not isinstance(value, int | str) or isinstance(value, bool) or len(str(name)) > NAME_MAX or (isinstance(value, str) and len(value) > NAME_MAX):
            raise BodyRefused("body_invalid", "What a preflight expects of a limit is a whole number, of the policy its hash.")
        found[str(name)] = value
    return found
