"""One screen for every day: is it well, what goes through, who waits, what is refused."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.forms import BAD_ABOVE_NOTHING, GREEN, ORANGE, RED, Ask, Panels, bars, curves, dashboard, number, row

YES = {"1": ("yes", GREEN), "0": ("NO", RED)}
SPENT = (
    'max by (campaign, limit) ((gateway_budget_settled{quantity!="concurrent"} + gateway_budget_reserved{quantity!="concurrent"})'
    ' / (gateway_budget_ceiling{quantity!="concurrent"} > 0))'
)


def overview() -> Dashboard:
    made = dashboard("overview", "Overview", "Is it well, what goes through, who waits, what is refused. Start here.")
    for panel in _now():
        made = made.with_panel(panel)
    made = made.with_row(row("What goes through"))
    for panel in _traffic():
        made = made.with_panel(panel)
    made = made.with_row(row("What does not"))
    for panel in _refused():
        made = made.with_panel(panel)
    return made


def _now() -> Panels:
    return [
        number(
            "Ready",
            "Whether a call could be admitted now, as /readyz says. Mend: it names each reason; most often an engine is down or the ledger cannot be written.",
            Ask("min(gateway_ready)"),
            words=YES,
            span=3,
        ),
        number(
            "Engines down",
            "Upstreams that get no calls. Mend: see the dashboard of engines; `gateway doctor` tries each from the gateway's side.",
            Ask("count(gateway_upstream_up == 0) or vector(0)"),
            steps=BAD_ABOVE_NOTHING,
            span=3,
        ),
        number("Calls at work", "Calls from admission to settlement.", Ask("sum(gateway_in_flight_calls)"), span=3),
        number(
            "Calls waiting",
            "For a slot, for room on a limit, for a count, or for the end of a halt. Mend: many for a slot: more slots or another engine; many "
            "for a limit: look at the budgets.",
            Ask("sum(gateway_waiting_calls)"),
            steps=((None, GREEN), (10, "yellow"), (50, ORANGE)),
            span=3,
        ),
        number(
            "Slots taken",
            "Of all engines' slots. Near 100 % for long: calls wait for the hardware and not for the gateway.",
            Ask("sum(gateway_slots_busy) / sum(gateway_slots_busy + gateway_slots_idle)"),
            unit="percentunit",
            steps=((None, GREEN), (0.9, "yellow")),
            span=3,
            decimals=0,
        ),
        number("Open campaigns", "Those that are halted are among them.", Ask("sum(gateway_campaigns)"), span=3),
        number(
            "Most spent limit",
            "The fullest limit of any open campaign, with what is held for calls under way. At 100 % its runs are told that it is over. Mend: "
            "see the dashboard of budgets.",
            Ask(f"max({SPENT})"),
            unit="percentunit",
            steps=((None, GREEN), (0.9, ORANGE), (1.0, RED)),
            span=3,
            decimals=0,
        ),
        number(
            "Failed calls",
            "Share of settled calls that an engine refused, failed, dropped or let time out. Mend: see the dashboard of reliability.",
            Ask('sum(rate(gateway_calls_total{outcome=~"engine_.+"}[$__rate_interval])) / sum(rate(gateway_calls_total[$__rate_interval]))'),
            unit="percentunit",
            steps=((None, GREEN), (0.01, ORANGE), (0.1, RED)),
            span=3,
            decimals=1,
        ),
    ]


def _traffic() -> Panels:
    return [
        curves(
            "Calls by how they ended",
            "Settled calls a second. `completed` and `length` are whole; cuts are the gateway's own (deadlines, closings); `engine_…` is the engine's doing.",
            Ask("sum by (outcome) (rate(gateway_calls_total[$__rate_interval]))", "{{outcome}}"),
            unit="reqps",
            stacked=True,
            colors={"completed": GREEN, "length": "light-green", "engine_error": RED, "engine_died": "dark-red", "client_cancelled": "light-blue"},
        ),
        curves(
            "Tokens by type",
            "Known tokens a second, by OpenTelemetry's histogram. What is not known is on the dashboard of reliability.",
            Ask("sum by (gen_ai_token_type) (rate(gen_ai_client_token_usage_sum[$__rate_interval]))", "{{gen_ai_token_type}}"),
            unit="short",
        ),
        curves(
            "Time to the first token",
            "From sending a stream to its first content, over all models: the engine's queue and prompt. Without the gateway's waiting place.",
            Ask("histogram_quantile(0.5, sum by (le) (rate(gen_ai_server_time_to_first_token_seconds_bucket[$__rate_interval])))", "half are faster"),
            Ask("histogram_quantile(0.95, sum by (le) (rate(gen_ai_server_time_to_first_token_seconds_bucket[$__rate_interval])))", "95 % are faster"),
            unit="s",
        ),
        curves(
            "Waiting before admission",
            "How long settled calls had waited in the gateway. Mend: more slots where they are all taken; else look who waits for a limit.",
            Ask("histogram_quantile(0.5, sum by (le) (rate(gateway_waited_seconds_bucket[$__rate_interval])))", "half waited less"),
            Ask("histogram_quantile(0.95, sum by (le) (rate(gateway_waited_seconds_bucket[$__rate_interval])))", "95 % waited less"),
            unit="s",
        ),
        curves(
            "Who waits, for what",
            "Calls in the waiting place: `slot` (or its turn), `limit` (room that running calls hold), `count` (its prompt is counted), "
            "`home` (its own engine is full), `engine` (none takes calls), `halted`.",
            Ask("sum by (reason) (gateway_waiting_calls)", "{{reason}}"),
            stacked=True,
        ),
        curves(
            "Slots",
            "Taken and free, of all engines.",
            Ask("sum(gateway_slots_busy)", "taken"),
            Ask("sum(gateway_slots_idle)", "free"),
            stacked=True,
            colors={"taken": ORANGE, "free": GREEN},
        ),
    ]


def _refused() -> Panels:
    return [
        curves(
            "Refusals by code",
            "Calls a second that were not admitted. `run_budget_reached` is a cap that did its work; `overloaded`, `engine_unavailable`, "
            "`ledger_unavailable` and `clock` are for the operator.",
            Ask("sum by (code) (rate(gateway_refusals_total[$__rate_interval]))", "{{code}}"),
            unit="reqps",
            stacked=True,
        ),
        curves(
            "Limits that stood in the way",
            "Final refusals a second by the limit's name, which is its path in the policy. Mend: raise it there for the next campaign, or "
            "leave it: that is what it is for.",
            Ask("sum by (limit) (rate(gateway_limit_refusals_total[$__rate_interval]))", "{{limit}}"),
            unit="reqps",
            stacked=True,
        ),
        bars(
            "Fullest limits of open campaigns",
            "Charged and held, of the ceiling: the ten fullest. Mend: `gateway campaign show` tells each limit's file and line.",
            Ask(f"topk(10, {SPENT})", "{{campaign}} {{limit}}"),
        ),
        curves(
            "Clamped calls",
            "Calls a second that were sent with less output than they wanted, by limit: the budget is nearly spent, or `call.output_tokens` is small.",
            Ask("sum by (limit) (rate(gateway_clamps_total[$__rate_interval]))", "{{limit}}"),
            unit="reqps",
        ),
    ]
