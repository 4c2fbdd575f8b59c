"""Handlers of what only tells. The ledger is read through a reading side of its own, on another thread: a long report holds up no call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from aiohttp import web

from gateway.control.bodies import ReasonBody, read
from gateway.control.problems import Problem
from gateway.control.services import SERVICES, ControlServices
from gateway.control.views import answer, campaign_view
from gateway.errors import GatewayError
from gateway.ledger.reading import GROUPS, LedgerReader

_T = TypeVar("_T")

IN_FLIGHT_SHOWN = 100
YES_OR_NO: Final = {"": False, "0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def usage(request: web.Request) -> web.Response:
    query = request.query
    by = query.get("by", "run")
    if by not in GROUPS:
        raise Problem(400, "invalid", f"Usage is not summed by {by!r}.", f"It is by: {', '.join(GROUPS)}.", "Ask for one of these.")
    across = query.get("across_labels", "").lower()
    if across not in YES_OR_NO:
        raise Problem(400, "invalid", f"across_labels is not {across!r}.", "It is true or false.", "Say one of these, or leave it out.")
    campaign, run, as_of, zone = query.get("campaign", ""), query.get("run", ""), query.get("as_of", "0"), query.get("zone", "")
    if zone and by != "day":
        raise Problem(400, "invalid", f"Usage by {by} has no time zone.", "Only days have one.", "Ask by day, or leave zone out.")
    if not (as_of.isascii() and as_of.isdigit() and len(as_of) <= 15):
        raise Problem(400, "invalid", f"The ledger has no entry {as_of!r}.", "An entry is named by its number.", "Ask with a whole number from 1.")

    def sums(reader: LedgerReader) -> dict[str, object]:
        return reader.usage(by, campaign=campaign, run=run, across_labels=YES_OR_NO[across], as_of=int(as_of), zone=zone)

    return answer(await from_ledger(request, sums))


async def run_receipt(request: web.Request) -> web.Response:
    campaign, run = request.match_info["campaign"], request.match_info["run"]
    request.app[SERVICES].runs.run(campaign, run)
    return await _receipt(request, campaign, run)


async def campaign_receipt(request: web.Request) -> web.Response:
    campaign = request.match_info["campaign"]
    request.app[SERVICES].runs.campaign(campaign)
    return await _receipt(request, campaign, "")


async def show_clock(request: web.Request) -> web.Response:
    return answer(_clock(request.app[SERVICES]))


async def accept_clock(request: web.Request) -> web.Response:
    services = request.app[SERVICES]
    body = await read(request, ReasonBody)
    await services.ledger.accept_clock(body.reason)
    return answer(_clock(services))


async def status(request: web.Request) -> web.Response:
    services = request.app[SERVICES]
    in_flight = services.runs.in_flight
    calls = [{"call": call.call_id, "campaign": call.campaign, "run": call.run, "key_id": call.key_id} for call in in_flight.calls()[:IN_FLIGHT_SHOWN]]
    campaigns = [campaign_view(campaign, in_flight) for campaign in services.runs.campaigns()]
    return answer({**process_view(services), "calls": calls, "campaigns": campaigns})


def process_view(services: ControlServices) -> dict[str, object]:
    """The gateway as a whole: whether it serves, who waits, its engines, its clock."""
    reasons = _not_ready(services)
    return {
        "ready": not reasons,
        "not_ready": reasons,
        "data_address": services.data_address(),
        "ledger": str(services.ledger.file.absolute()),
        "in_flight": len(services.runs.in_flight),
        "waiting": dict(services.gate_view()),
        "upstreams": [dict(view) for view in services.upstream_view()],
        "clock": _clock(services),
    }


async def metrics(request: web.Request) -> web.Response:
    return web.Response(body=request.app[SERVICES].render_metrics(), headers={"Content-Type": METRICS_TYPE})


async def livez(_request: web.Request) -> web.Response:
    """The process answers; that is all it says."""
    return answer({"live": True})


async def readyz(request: web.Request) -> web.Response:
    """Whether a call could be admitted now."""
    reasons = _not_ready(request.app[SERVICES])
    return answer({"ready": not reasons, "not_ready": reasons}, 503 if reasons else 200)


def _not_ready(services: ControlServices) -> list[str]:
    reasons = list(services.not_ready())
    try:
        services.ledger.admissible()
    except GatewayError as error:
        reasons.append(str(error))
    return reasons


def _clock(services: ControlServices) -> dict[str, object]:
    clock = services.ledger.clock
    return {"now_ms": clock.now_ms(), "drift_ms": clock.drift_ms(), "certain": not clock.doubt, "doubt": clock.doubt}


async def _receipt(request: web.Request, campaign: str, run: str) -> web.Response:
    found = await from_ledger(request, lambda reader: reader.receipt(campaign, run))
    return answer({"receipt": found, "conflicts": found.get("conflicts", [])})


async def from_ledger(request: web.Request, ask: Callable[[LedgerReader], _T]) -> _T:
    """On another thread, with a reading side of its own."""
    return await read_aside(request.app[SERVICES], ask)


async def read_aside(services: ControlServices, ask: Callable[[LedgerReader], _T]) -> _T:
    def work() -> _T:
        with services.reader() as reader:
            return ask(reader)

    return await asyncio.to_thread(work)
