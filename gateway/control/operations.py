"""Every request of the control plane in one table: what answers it, what its body may say, what it may be asked, which statuses it has.

The routes are made from it, and the OpenAPI document too, so that neither can say what the other does not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from gateway.control import bodies, budgets, campaigns, corrections, history, live, notes, pages, reading, runs, upstreams

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CAMPAIGN = "/v1/campaigns/{campaign}"
RUN = CAMPAIGN + "/runs/{run}"
UPSTREAM = "/v1/upstreams/{upstream}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    does: str
    """One line, for the document."""
    method: str
    path: str
    handler: Handler
    gives: tuple[str, ...] = ()
    """Names that the answer always holds."""
    body: type[bodies.Body] | None = None
    query: tuple[str, ...] = ()
    makes: bool = False
    """201 where it made something; 200 where that was there."""
    refuses: tuple[int, ...] = ()
    """Statuses of errors, beside those that every request has."""
    media: str = "application/json"
    """What a good answer is."""
    ready: bool = False
    """503 is an answer like 200."""

    @property
    def name(self) -> str:
        return self.handler.__name__

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Of a page, and of what a scraper or a probe asks, whatever stands behind the `?` is nobody's concern."""
        if self.path.startswith("/v1/"):
            bodies.check_query(request, self.query)
        return await self.handler(request)


NAMED, SAID = (404,), (400, 404, 409)
"""What names something that may not be there; what is also said wrongly, or not allowed by what stands."""

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        does="Open a campaign under a policy, frozen as it is now.",
        method="POST",
        path="/v1/campaigns",
        handler=campaigns.open_campaign,
        body=bodies.OpenCampaignBody,
        gives=("campaign", "state", "policy_hash", "created"),
        makes=True,
        refuses=SAID,
    ),
    Operation(does="All campaigns.", method="GET", path="/v1/campaigns", handler=campaigns.list_campaigns, gives=("campaigns",)),
    Operation(
        does="A campaign with its limits.", method="GET", path=CAMPAIGN, handler=campaigns.show_campaign, gives=("campaign", "state", "limits"), refuses=NAMED
    ),
    Operation(
        does="Admit no new calls; nothing is cut.",
        method="POST",
        path=CAMPAIGN + "/halt",
        handler=campaigns.halt,
        body=bodies.ReasonBody,
        gives=("campaign", "state"),
        refuses=SAID,
    ),
    Operation(
        does="Admit calls again.",
        method="POST",
        path=CAMPAIGN + "/resume",
        handler=campaigns.resume,
        body=bodies.ReasonBody,
        gives=("campaign", "state"),
        refuses=SAID,
    ),
    Operation(
        does="Close a campaign and every open run of it.",
        method="POST",
        path=CAMPAIGN + "/close",
        handler=campaigns.close_campaign,
        body=bodies.CloseCampaignBody,
        gives=("receipt", "conflicts"),
        refuses=SAID,
    ),
    Operation(
        does="The receipt that stands.",
        method="GET",
        path=CAMPAIGN + "/receipt",
        handler=reading.campaign_receipt,
        gives=("receipt", "conflicts"),
        refuses=NAMED,
    ),
    Operation(
        does="Put a reconciliation on record.",
        method="POST",
        path=CAMPAIGN + "/reconciled",
        handler=notes.note_reconciled,
        body=notes.ReconciledBody,
        gives=("entry",),
        refuses=SAID,
    ),
    Operation(
        does="Open a run; its keys are shown this once.",
        method="POST",
        path=CAMPAIGN + "/runs",
        handler=runs.open_run,
        body=bodies.OpenRunBody,
        gives=("campaign", "run", "keys", "key_ids", "created"),
        makes=True,
        refuses=SAID,
    ),
    Operation(does="Runs of a campaign.", method="GET", path=CAMPAIGN + "/runs", handler=runs.list_runs, gives=("runs",), refuses=NAMED),
    Operation(
        does="A run with its limits, deadlines and keys.",
        method="GET",
        path=RUN,
        handler=runs.show_run,
        gives=("campaign", "run", "state", "limits", "deadlines", "keys"),
        refuses=NAMED,
    ),
    Operation(
        does="Close a run with its results.",
        method="POST",
        path=RUN + "/close",
        handler=runs.close_run,
        body=bodies.CloseRunBody,
        gives=("receipt", "conflicts"),
        refuses=SAID,
    ),
    Operation(does="The receipt that stands.", method="GET", path=RUN + "/receipt", handler=reading.run_receipt, gives=("receipt", "conflicts"), refuses=NAMED),
    Operation(
        does="Its calls in time, what was refused, and how its accounts rose.",
        method="GET",
        path=RUN + "/history",
        handler=history.run_history,
        gives=("calls", "refusals", "events", "series"),
        refuses=NAMED,
    ),
    Operation(
        does="Every limit that the run can meet, and what is left of each.",
        method="GET",
        path=RUN + "/budget",
        handler=budgets.run_budget,
        query=("lane",),
        gives=("limits", "call", "deadlines", "policy_hash", "limits_hash"),
        refuses=(400, 404),
    ),
    Operation(
        does="Hold beliefs about limits against what holds.",
        method="POST",
        path=RUN + "/preflight",
        handler=budgets.preflight,
        body=bodies.PreflightBody,
        gives=("passed", "differences"),
        refuses=SAID,
    ),
    Operation(
        does="Why a call went as it did.", method="GET", path="/v1/calls/{call}", handler=budgets.explain, gives=("call", "why", "entries"), refuses=NAMED
    ),
    Operation(
        does="Read every policy file anew.", method="POST", path="/v1/policies/reload", handler=budgets.reload_policies, gives=("policies",), refuses=(400,)
    ),
    Operation(
        does="Correct what a call used, by a new entry.",
        method="POST",
        path="/v1/calls/{call}/correct",
        handler=corrections.correct_call,
        body=bodies.CorrectCallBody,
        gives=("before", "after"),
        refuses=SAID,
    ),
    Operation(
        does="Issue another key; it is shown this once.",
        method="POST",
        path="/v1/keys",
        handler=runs.issue_key,
        body=bodies.IssueKeyBody,
        gives=("key_id", "key"),
        makes=True,
        refuses=SAID,
    ),
    Operation(
        does="Keys, never their secrets.", method="GET", path="/v1/keys", handler=runs.list_keys, query=("campaign", "run"), gives=("keys",), refuses=NAMED
    ),
    Operation(
        does="Revoke a key; its calls are cut.",
        method="POST",
        path="/v1/keys/{key_id}/revoke",
        handler=runs.revoke_key,
        body=bodies.ReasonBody,
        gives=("key_id", "revoked"),
        refuses=SAID,
    ),
    Operation(
        does="What was used and what was charged.",
        method="GET",
        path="/v1/usage",
        handler=reading.usage,
        query=("by", "campaign", "run", "zone", "across_labels", "as_of"),
        gives=("by", "groups"),
        refuses=(400, 404),
    ),
    Operation(does="The ledger's clock.", method="GET", path="/v1/ledger/clock", handler=reading.show_clock, gives=("now_ms", "drift_ms", "certain", "doubt")),
    Operation(
        does="A person says that the system's clock is right.",
        method="POST",
        path="/v1/ledger/clock/accept",
        handler=reading.accept_clock,
        body=bodies.ReasonBody,
        gives=("now_ms", "drift_ms", "certain", "doubt"),
        refuses=(400,),
    ),
    Operation(does="The engines, how each stands and why.", method="GET", path="/v1/upstreams", handler=upstreams.list_upstreams, gives=("upstreams",)),
    Operation(
        does="Send no new calls to an upstream; those that run go on.",
        method="POST",
        path=UPSTREAM + "/drain",
        handler=upstreams.drain_upstream,
        gives=("upstream", "standing", "busy"),
        refuses=NAMED,
    ),
    Operation(
        does="Let an upstream have calls again.",
        method="POST",
        path=UPSTREAM + "/resume",
        handler=upstreams.resume_upstream,
        gives=("upstream", "standing", "busy"),
        refuses=NAMED,
    ),
    Operation(
        does="What runs, what waits and for what.",
        method="GET",
        path="/v1/status",
        handler=reading.status,
        gives=("ready", "not_ready", "data_address", "ledger", "in_flight", "waiting", "upstreams", "campaigns", "clock"),
    ),
)

LOOKING: tuple[Operation, ...] = (
    Operation(
        does="What runs, waits, is left and was refused, at a glance; or one run alone.",
        method="GET",
        path="/v1/overview",
        handler=live.show_overview,
        query=("campaign", "run"),
        gives=("limits",),
        refuses=(404,),
    ),
    Operation(
        does="The same again and again, as server-sent events.",
        method="GET",
        path="/v1/events",
        handler=live.events,
        query=("campaign", "run"),
        media="text/event-stream",
        refuses=(404,),
    ),
    Operation(does="The status page.", method="GET", path="/", handler=pages.overview_page, media="text/html"),
    Operation(does="A run's page.", method="GET", path="/runs/{campaign}/{run}", handler=pages.run_page, media="text/html"),
    Operation(does="A call's page.", method="GET", path="/calls/{call}", handler=pages.call_page, media="text/html"),
    Operation(does="What the pages are made of.", method="GET", path="/page/{file}", handler=pages.page_file, media="*/*", refuses=NAMED),
)
"""What the status page is made of."""

TELLING: tuple[Operation, ...] = (
    Operation(does="Metrics as Prometheus text.", method="GET", path="/metrics", handler=reading.metrics, media="text/plain"),
    Operation(does="The process answers.", method="GET", path="/livez", handler=reading.livez, gives=("live",)),
    Operation(does="Whether a call could be admitted now.", method="GET", path="/readyz", handler=reading.readyz, gives=("ready", "not_ready"), ready=True),
)
"""What may be heard over TCP without a token: it changes nothing and names no secret."""

EVERY = (*OPERATIONS, *LOOKING, *TELLING)
