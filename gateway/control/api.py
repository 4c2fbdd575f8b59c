"""The applications: every route of the control plane, and the few of the metrics listener."""

from __future__ import annotations

from aiohttp import web

from gateway.control import budgets, campaigns, corrections, notes, reading, runs
from gateway.control.problems import answer_problems
from gateway.control.services import SERVICES, ControlServices

BODY_BYTES_MAX = 256 * 1024

_CAMPAIGN = "/v1/campaigns/{campaign}"
_RUN = _CAMPAIGN + "/runs/{run}"


def control_application(services: ControlServices) -> web.Application:
    app = web.Application(middlewares=[answer_problems], client_max_size=BODY_BYTES_MAX)
    app[SERVICES] = services
    app.add_routes(
        [
            web.post("/v1/campaigns", campaigns.open_campaign),
            web.get("/v1/campaigns", campaigns.list_campaigns),
            web.get(_CAMPAIGN, campaigns.show_campaign),
            web.post(_CAMPAIGN + "/halt", campaigns.halt),
            web.post(_CAMPAIGN + "/resume", campaigns.resume),
            web.post(_CAMPAIGN + "/close", campaigns.close_campaign),
            web.get(_CAMPAIGN + "/receipt", reading.campaign_receipt),
            web.post(_CAMPAIGN + "/reconciled", notes.note_reconciled),
            web.post(_CAMPAIGN + "/runs", runs.open_run),
            web.get(_CAMPAIGN + "/runs", runs.list_runs),
            web.get(_RUN, runs.show_run),
            web.post(_RUN + "/close", runs.close_run),
            web.get(_RUN + "/receipt", reading.run_receipt),
            web.get(_RUN + "/budget", budgets.run_budget),
            web.post(_RUN + "/preflight", budgets.preflight),
            web.get("/v1/calls/{call}", budgets.explain),
            web.post("/v1/policies/reload", budgets.reload_policies),
            web.post("/v1/calls/{call}/correct", corrections.correct_call),
            web.post("/v1/keys", runs.issue_key),
            web.get("/v1/keys", runs.list_keys),
            web.post("/v1/keys/{key_id}/revoke", runs.revoke_key),
            web.get("/v1/usage", reading.usage),
            web.get("/v1/ledger/clock", reading.show_clock),
            web.post("/v1/ledger/clock/accept", reading.accept_clock),
            web.get("/v1/status", reading.status),
            *_telling(),
        ]
    )
    return app


def metrics_application(services: ControlServices) -> web.Application:
    """What may be heard over TCP: it changes nothing and names no secret."""
    app = web.Application(middlewares=[answer_problems], client_max_size=1024)
    app[SERVICES] = services
    app.add_routes(_telling())
    return app


def _telling() -> list[web.RouteDef]:
    return [web.get("/metrics", reading.metrics), web.get("/livez", reading.livez), web.get("/readyz", reading.readyz)]
