"""Handler of a run's history: what the run's page draws."""

from __future__ import annotations

from typing import Final, cast

from aiohttp import web

from gateway.accounting.chain import decode
from gateway.accounting.limit import Scope
from gateway.accounting.quantity import Quantity
from gateway.control.live import LOOKING
from gateway.control.overview import View, worded
from gateway.control.reading import read_aside
from gateway.control.services import SERVICES
from gateway.ledger.reading import LedgerReader
from gateway.reconcile.timeline import rows_of
from gateway.reports.history import ENTRIES_MAX, history, reconciled
from gateway.runs.left import LimitLeft

CAMPAIGN_ENTRIES_MAX: Final = 2_000
"""How far back a reconciliation of the whole campaign is looked for."""


async def run_history(request: web.Request) -> web.Response:
    """At most a second old, however many look."""
    services = request.app[SERVICES]
    campaign, run = request.match_info["campaign"], request.match_info["run"]
    state = services.runs.campaign(campaign)
    services.runs.run(campaign, run)

    async def make() -> View:
        limits = () if state.policy_problem else services.runs.limits(campaign, run)
        now_ms = services.ledger.now_ms()
        return await read_aside(services, lambda reader: _read(reader, campaign, run, limits, now_ms))

    return web.json_response(body=await request.app[LOOKING].snapshot(f"history of {campaign}/{run}", make))


def _read(reader: LedgerReader, campaign: str, run: str, limits: tuple[LimitLeft, ...], now_ms: int) -> View:
    accounts = ((found.limit.account, found.limit) for found in limits)
    drawn = {account.key: limit for account, limit in accounts if account.scope is Scope.RUN and account.quantity is not Quantity.CONCURRENT}
    with reader.at_one_moment():
        found = history(reader.chain(f"run:{campaign}/{run}", last=ENTRIES_MAX), reader.balances(drawn))
        of_campaign = reconciled(decode(entry.body) for entry in reader.chain(f"campaign:{campaign}", last=CAMPAIGN_ENTRIES_MAX) if entry.kind == "event")
    if of_campaign is not None:
        found["campaign_reconciled"] = of_campaign
    series = cast("dict[str, object]", found["series"])
    found["series"] = [{"name": limit.name, "ceiling": limit.ceiling, "points": series[key]} for key, limit in drawn.items() if key in series]
    found["refusals"] = [worded(refusal) for refusal in cast("list[View]", found["refusals"])]
    calls = cast("list[View]", found["calls"])
    for call, row in zip(calls, rows_of(_span(call, now_ms) for call in calls), strict=True):
        call["row"] = row
    return found


def _span(call: View, now_ms: int) -> tuple[int, int]:
    admitted = cast(int, call["admitted_ms"])
    return admitted, admitted + cast(int, call["took_ms"]) if "took_ms" in call else now_ms
