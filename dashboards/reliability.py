"""What went wrong, and whether the figures can be believed."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.forms import BAD_ABOVE_NOTHING, GREEN, ORANGE, RED, Ask, Panels, bars, curves, dashboard, listing, number, on_the_right, row

YES = {"1": ("yes", GREEN), "0": ("NO", RED)}


def reliability() -> Dashboard:
    made = dashboard("reliability", "Reliability", "Whether the ledger keeps up, the gateway costs little, and every figure can be believed.")
    for panel in _ledger_now():
        made = made.with_panel(panel)
    made = made.with_row(row("The ledger and the gateway itself"))
    for panel in _ledger():
        made = made.with_panel(panel)
    made = made.with_row(row("Whether the figures can be believed"))
    for panel in _figures():
        made = made.with_panel(panel)
    made = made.with_row(row("Calls that did not end whole"))
    for panel in _ends():
        made = made.with_panel(panel)
    return made


def _ledger_now() -> Panels:
    return [
        number(
            "Ledger takes entries",
            "Mend where not: is its disk full or read-only? It tries again every half second by itself.",
            Ask("min(gateway_ledger_writable)"),
            words=YES,
            span=4,
        ),
        number(
            "Clock is certain",
            "Mend where not: set the system's clock right, then `gateway ledger clock --accept`.",
            Ask("min(gateway_ledger_clock_certain)"),
            words=YES,
            span=4,
        ),
        number(
            "Commits that failed",
            "In the last hour. Mend: the log says why; most often the disk.",
            Ask("sum(increase(gateway_ledger_commit_failures_total[1h]))"),
            steps=BAD_ABOVE_NOTHING,
            span=4,
            decimals=0,
        ),
        number(
            "Room on the ledger's disk",
            "Below `ledger.min_free_bytes` nothing is admitted. Mend: make room, or move the ledger.",
            Ask("min(gateway_ledger_free_bytes)"),
            unit="bytes",
            span=4,
        ),
        number(
            "Unknown figures",
            "Share of settled calls of the last hour with a token count that nobody knows; they are charged as what they had reserved.",
            Ask('sum(increase(gateway_unknown_usage_total{kind="output"}[1h])) / sum(increase(gateway_calls_total[1h]))'),
            unit="percentunit",
            steps=((None, GREEN), (0.02, ORANGE), (0.1, RED)),
            span=4,
            decimals=1,
        ),
        number(
            "Unexplained rows",
            "Of the last reconciliations on record of open campaigns. Mend: `gateway reconcile` shows each row with what was looked for.",
            Ask("sum(gateway_reconciliation_unexplained) or vector(0)"),
            steps=BAD_ABOVE_NOTHING,
            span=4,
        ),
    ]


def _ledger() -> Panels:
    return [
        curves(
            "Commits of the ledger",
            "How long a durable commit takes. Every call waits for two. Mend: a disk of its own; no network file system.",
            Ask("histogram_quantile(0.5, sum by (le) (rate(gateway_ledger_commit_seconds_bucket[$__rate_interval])))", "half are faster"),
            Ask("histogram_quantile(0.99, sum by (le) (rate(gateway_ledger_commit_seconds_bucket[$__rate_interval])))", "99 % are faster"),
            unit="s",
            steps=((None, GREEN), (0.25, RED)),
        ),
        curves(
            "Not durable yet",
            "Commands that wait for the disk, and for how long the commit under way has taken. Above 20,000 commands posting fails.",
            Ask("sum(gateway_ledger_backlog_commands)", "commands"),
            Ask("max(gateway_ledger_lag_seconds)", "seconds"),
        ).override_by_name("seconds", on_the_right("s")),
        curves(
            "The gateway's own overhead",
            "Its share of a call: neither waiting nor the engine.",
            Ask("histogram_quantile(0.5, sum by (le) (rate(gateway_overhead_seconds_bucket[$__rate_interval])))", "half are faster"),
            Ask("histogram_quantile(0.99, sum by (le) (rate(gateway_overhead_seconds_bucket[$__rate_interval])))", "99 % are faster"),
            unit="s",
            steps=((None, GREEN), (0.1, ORANGE)),
        ),
        curves(
            "Commands in a commit",
            "How many share one: under load many do, which is why it keeps up.",
            Ask("sum(rate(gateway_ledger_commands_total[$__rate_interval])) / sum(rate(gateway_ledger_commit_seconds_count[$__rate_interval]))", "commands"),
        ),
        curves(
            "CPU",
            "Of the gateway's process; 1 is one core, and most of it can use no more.",
            Ask('sum(rate(process_cpu_seconds_total{job="gateway"}[$__rate_interval]))', "cores"),
            span=8,
        ),
        curves(
            "Memory",
            "Resident, of the gateway's process. It grows with open calls and campaigns, not with time.",
            Ask('sum(process_resident_memory_bytes{job="gateway"})', "resident"),
            unit="bytes",
            span=8,
        ),
        curves(
            "Open files",
            "Of those that the process may have: two a call, and some. Mend: `LimitNOFILE` of the service, `ulimit -n`.",
            Ask('max(process_open_fds{job="gateway"} / process_max_fds{job="gateway"})', "open"),
            unit="percentunit",
            steps=((None, GREEN), (0.8, RED)),
            span=8,
        ),
    ]


def _figures() -> Panels:
    return [
        curves(
            "Where usage comes from",
            "Settled calls a second by source: `reported` by the engine, `running` totals of a cut stream, `counted` by the gateway, "
            "`unknown`, or `none` was made.",
            Ask("sum by (source) (rate(gateway_calls_total[$__rate_interval]))", "{{source}}"),
            unit="reqps",
            stacked=True,
            colors={"reported": GREEN, "unknown": RED},
        ),
        curves(
            "Unknown figures by model",
            "Settled calls a second whose count nobody knows, by model. Mend: an engine that reports usage in streams; `gateway doctor` says whether it does.",
            Ask("sum by (model, kind) (rate(gateway_unknown_usage_total[$__rate_interval]))", "{{model}} {{kind}}"),
            unit="reqps",
        ),
        curves(
            "Counts that drift",
            "Prompts that were counted as exact and reported otherwise. Mend: `counter` of the model in the policy; the engine's template may have changed.",
            Ask("sum by (model) (rate(gateway_count_drift_total[$__rate_interval]))", "{{model}}"),
            unit="reqps",
            span=8,
        ),
        curves(
            "Charged above what was reserved",
            'Tokens a second. Mend: an exact counter (`counter = "engine"`), or a larger `overhead_tokens`.',
            Ask("sum by (model, kind) (rate(gateway_overshoot_tokens_total[$__rate_interval]))", "{{model}} {{kind}}"),
            span=8,
        ),
        curves(
            "Not readable, not measured",
            "Calls in which the meter could not read an event; calls that a fault of the gateway's left without figures. Mend: the log names "
            "the call: please report it.",
            Ask("sum by (model) (rate(gateway_meter_faults_total[$__rate_interval]))", "unreadable event: {{model}}"),
            Ask("sum by (upstream) (rate(gateway_unmeasured_calls_total[$__rate_interval]))", "unmeasured: {{upstream}}"),
            unit="reqps",
            span=8,
        ),
        listing(
            "Last reconciliations",
            "Rows by class, of each open campaign. docs/reconciliation.md says what each class means and what to do.",
            Ask("sort_desc(gateway_reconciliation_rows > 0)"),
            columns={"campaign": "Campaign", "class": "Class"},
            value="Rows",
        ),
        bars(
            "Bodies kept",
            "What became of the bodies that policies want kept, in the last hour. Mend for `full`: `gateway capture prune`, or a larger "
            "`capture.max_bytes`; for `behind`: a faster disk.",
            Ask("sum by (result) (increase(gateway_captured_bodies_total[1h]))", "{{result}}"),
            unit="short",
            steps=((None, "blue"),),
            highest=None,
        ),
    ]


def _ends() -> Panels:
    return [
        curves(
            "Failures by kind",
            "OpenTelemetry's `error.type`: the outcome of calls that did not end whole, a second.",
            Ask('sum by (error_type) (rate(gen_ai_client_operation_duration_seconds_count{error_type!=""}[$__rate_interval]))', "{{error_type}}"),
            unit="reqps",
            stacked=True,
        ),
        curves(
            "After a call was left",
            "What engines were seen to do, a second: `confirmed` stopped, `unconfirmed` still at work, `unknown` could not be told.",
            Ask("sum by (result) (rate(gateway_cancellations_total[$__rate_interval]))", "{{result}}"),
            unit="reqps",
            stacked=True,
            colors={"confirmed": GREEN, "unconfirmed": RED},
        ),
        curves(
            "Strangers",
            "Requests a second without a known key, or for what is not declared. Mend: an agent has an old key, a wrong address, or tries doors.",
            Ask("sum(rate(gateway_unauthorized_total[$__rate_interval]))", "no known key"),
            Ask("sum(rate(gateway_undeclared_total[$__rate_interval]))", "not declared"),
            unit="reqps",
        ),
        curves(
            "Helper requests",
            "Tokenizing and counting that agents ask for: nothing is charged, the policy bounds their number.",
            Ask("sum by (api) (rate(gateway_utility_calls_total[$__rate_interval]))", "{{api}}"),
            unit="reqps",
        ),
    ]
