"""What each open campaign may still use, lane by lane; at most fifty have series."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.forms import GREEN, ORANGE, RED, Ask, Panels, bars, choice, curves, dashboard, listing, number, row

OF = 'campaign=~"$campaign", lane=~"$lane"'
NOT_PLACES = f'{OF}, quantity!="concurrent"'
"""Places of calls that run at once come back: they are never spent."""
USED = f"(gateway_budget_settled{{{NOT_PLACES}}} + gateway_budget_reserved{{{NOT_PLACES}}}) / (gateway_budget_ceiling{{{NOT_PLACES}}} > 0)"
NAMED = "{{campaign}} {{limit}}"
SPENDABLE = f'{OF}, quantity!~"concurrent|runs"'


def budgets() -> Dashboard:
    variables = [choice("campaign", "Campaign", "gateway_budget_ceiling"), choice("lane", "Lane", "gateway_budget_ceiling")]
    made = dashboard(
        "budgets",
        "Budgets",
        "What each open campaign may still use. A limit without a campaign is the gateway's own. A closed campaign has its receipt instead.",
        variables,
    )
    for panel in _summary():
        made = made.with_panel(panel)
    made = made.with_row(row("Limits"))
    for panel in _limits():
        made = made.with_panel(panel)
    made = made.with_row(row("Where it goes"))
    for panel in _spending():
        made = made.with_panel(panel)
    return made


def _summary() -> Panels:
    return [
        number("Open campaigns", "Open ones.", Ask('sum(gateway_campaigns{state="open"})'), span=4),
        number(
            "Halted campaigns",
            "Their calls wait, none is admitted. Mend: `gateway campaign resume`, when its reason is gone.",
            Ask('sum(gateway_campaigns{state="halted"})'),
            steps=((None, GREEN), (1, ORANGE)),
            span=4,
        ),
        number("Open runs", "Of the campaigns chosen.", Ask('sum(gateway_runs{campaign=~"$campaign"})'), span=4),
        number(
            "Limits spent",
            "Limits of the campaigns chosen of which nothing is left. Mend: none is needed where a campaign is done; else open another with a "
            "larger limit: an open campaign keeps its policy.",
            Ask(f'count(gateway_budget_left{{{OF}, quantity!="concurrent"}} == 0) or vector(0)'),
            steps=((None, GREEN), (1, RED)),
            span=4,
        ),
        number(
            "Limits nearly spent",
            "More than 90 % used, with what is held for calls under way.",
            Ask(f"count({USED} > 0.9) or vector(0)"),
            steps=((None, GREEN), (1, ORANGE)),
            span=4,
        ),
        number(
            "Runs warned",
            "Limits of runs that came to `agent.warn_at` of their ceiling, in the last hour: their agents were told.",
            Ask("sum(increase(gateway_warnings_total[1h])) or vector(0)"),
            span=4,
            decimals=0,
        ),
    ]


def _limits() -> Panels:
    return [
        bars("Used of each limit", "Charged and held, of the ceiling.", Ask(f"sort_desc({USED})", NAMED), span=12, height=10),
        listing(
            "Left",
            "In the limit's own unit: ceiling less charged less held. A `day` begins anew at its midnight.",
            Ask(f"sort(gateway_budget_left{{{OF}}})"),
            columns={"campaign": "Campaign", "limit": "Limit", "lane": "Lane", "quantity": "Of", "window": "Window"},
            value="Left",
            span=12,
            height=10,
        ),
        curves(
            "Used over time",
            "Charged and held, of the ceiling. A curve that is steep at the end will be cut off before its work is done.",
            Ask(USED, NAMED),
            unit="percentunit",
            steps=((None, GREEN), (0.9, ORANGE), (1.0, RED)),
            highest=1,
        ),
        curves(
            "Hours until it is spent",
            "At the pace of the last half hour: what is left, by what is charged an hour. No curve: nothing is charged now.",
            Ask(
                f"gateway_budget_left{{{SPENDABLE}}} / (deriv(gateway_budget_settled{{{SPENDABLE}}}[30m]) > 0) / 3600",
                NAMED,
            ),
            unit="h",
        ),
    ]


def _spending() -> Panels:
    return [
        curves(
            "Output tokens charged",
            "Tokens a second that campaigns are charged, by limit. Charges are not usage: a cut stream may be charged whole.",
            Ask(f'deriv(gateway_budget_settled{{{OF}, quantity="output_tokens", campaign!=""}}[$__rate_interval])', NAMED),
        ),
        curves(
            "Held for calls under way",
            "Output tokens that running calls may still use. What they leave comes back when they end.",
            Ask(f'gateway_budget_reserved{{{OF}, quantity="output_tokens"}}', NAMED),
        ),
        curves(
            "Charged by model",
            "Tokens a second, over all campaigns.",
            Ask("sum by (model, kind) (rate(gateway_charged_tokens_total[$__rate_interval]))", "{{model}} {{kind}}"),
            stacked=True,
        ),
        curves("Runs by campaign", "Open runs.", Ask('gateway_runs{campaign=~"$campaign"}', "{{campaign}}"), stacked=True),
    ]
