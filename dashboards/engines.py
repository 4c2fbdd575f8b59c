"""Who answers, how fast, and how full."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.forms import (
    BAD_ABOVE_NOTHING,
    BLUE,
    DOUBTFUL_ABOVE_NOTHING,
    GREEN,
    ORANGE,
    RED,
    YELLOW,
    Ask,
    Panels,
    choice,
    curves,
    dashboard,
    number,
    row,
    states,
)

OF = 'upstream=~"$upstream"'
AI = 'upstream=~"$upstream", gen_ai_request_model=~"$model"'
NAMED = "{{upstream}} {{gen_ai_request_model}}"
STANDINGS = tuple(enumerate(("serves", "tried", "open", "unhealthy", "drained"), 1))
STANDING_WORDS = {str(number): (standing, color) for (number, standing), color in zip(STANDINGS, (GREEN, YELLOW, ORANGE, RED, BLUE), strict=True)}


def engines() -> Dashboard:
    variables = [
        choice("upstream", "Upstream", "gateway_upstream_up"),
        choice("model", "Model", "gen_ai_client_operation_duration_seconds_count", "gen_ai_request_model"),
    ]
    made = dashboard("engines", "Engines", "Each upstream of gateway.toml: health, slots, and pace as the gateway sees it.", variables)
    for panel in _health():
        made = made.with_panel(panel)
    made = made.with_row(row("Pace"))
    for panel in _pace():
        made = made.with_panel(panel)
    made = made.with_row(row("Work"))
    for panel in _work():
        made = made.with_panel(panel)
    return made


def _health() -> Panels:
    return [
        states(
            "Standing",
            "Whether it gets calls, or why not: `tried` gets one after failures, `open` none for a while. Mend: `gateway upstream list` gives the reason; "
            "`gateway upstream probe ADDRESS` says which health path is right, `gateway doctor` tries all of it; `gateway upstream resume` ends a drain.",
            Ask(
                " + ".join(f'{number} * sum by (upstream) (gateway_upstream_standing{{{OF}, standing="{standing}"}})' for number, standing in STANDINGS),
                "{{upstream}}",
            ),
            words=STANDING_WORDS,
            height=8,
        ),
        curves(
            "Slots taken",
            "Of the slots that gateway.toml gives it. Always full: more would be used, if the engine has them. Never full: calls wait for something else.",
            Ask(f"max by (upstream) (gateway_slots_busy{{{OF}}} / (gateway_slots_busy{{{OF}}} + gateway_slots_idle{{{OF}}} > 0))", "{{upstream}}"),
            unit="percentunit",
            highest=1,
        ),
        number(
            "Does not accept the gateway",
            "Calls of the last hour that the engine answered with 401 or 403. Mend: the credential named by `credential_env` of this upstream "
            "is missing or wrong.",
            Ask(f"sum(increase(gateway_upstream_auth_total{{{OF}}}[1h]))"),
            steps=BAD_ABOVE_NOTHING,
            span=6,
            decimals=0,
        ),
        number(
            "Ran past the ceiling",
            "Calls of the last hour whose engine made more than it was asked for; they were cut. Mend: another release of the engine; `gateway "
            "doctor` asks it for 3 tokens.",
            Ask(f"sum(increase(gateway_cap_ignored_total{{{OF}}}[1h]))"),
            steps=BAD_ABOVE_NOTHING,
            span=6,
            decimals=0,
        ),
        number(
            "Not seen to stop",
            "Calls of the last hour that were left or cut, after which the engine still worked. It computes for nobody, and the slot is not "
            "really free. Mend: docs/apis.md says how each engine stops.",
            Ask(f'sum(increase(gateway_cancellations_total{{{OF}, result="unconfirmed"}}[1h]))'),
            steps=DOUBTFUL_ABOVE_NOTHING,
            span=6,
            decimals=0,
        ),
        number(
            "Found unreachable",
            "Calls of the last hour that could not even be sent. Nothing is charged for them.",
            Ask(f'sum(increase(gateway_voids_total{{{OF}, reason="unreachable"}}[1h]))'),
            steps=BAD_ABOVE_NOTHING,
            span=6,
            decimals=0,
        ),
    ]


def _pace() -> Panels:
    def quantile(of: str, name: str) -> str:
        return f"histogram_quantile({of}, sum by (upstream, gen_ai_request_model, le) (rate({name}_bucket{{{AI}}}[$__rate_interval])))"

    first, each, whole = "gen_ai_server_time_to_first_token_seconds", "gen_ai_server_time_per_output_token_seconds", "gen_ai_client_operation_duration_seconds"
    return [
        curves("Time to the first token, half are faster", "From sending a stream to its first content.", Ask(quantile("0.5", first), NAMED), unit="s"),
        curves(
            "Time to the first token, 95 % are faster",
            "High against the half: some prompts are long, or the engine has a queue of its own. Mend: no more slots than it runs at once.",
            Ask(quantile("0.95", first), NAMED),
            unit="s",
        ),
        curves(
            "Time for each further token",
            "Half are faster. It rises with the number of calls that run side by side.",
            Ask(quantile("0.5", each), NAMED),
            unit="s",
        ),
        curves("Whole calls, 95 % are faster", "From sending to the end, streams and others.", Ask(quantile("0.95", whole), NAMED), unit="s"),
    ]


def _work() -> Panels:
    return [
        curves(
            "Calls",
            "Settled calls a second.",
            Ask(f"sum by (upstream, gen_ai_request_model) (rate(gen_ai_client_operation_duration_seconds_count{{{AI}}}[$__rate_interval]))", NAMED),
            unit="reqps",
            stacked=True,
        ),
        curves(
            "Output tokens",
            "Known tokens a second that it made: its throughput as its clients see it.",
            Ask(f'sum by (upstream, gen_ai_request_model) (rate(gen_ai_client_token_usage_sum{{{AI}, gen_ai_token_type="output"}}[$__rate_interval]))', NAMED),
            stacked=True,
        ),
        curves(
            "Prompts from the cache",
            "Cached tokens, of all input: high where a run goes back to the engine that knows its prompt.",
            Ask(
                'sum by (model) (rate(gateway_tokens_total{model=~"$model", kind="cached"}[$__rate_interval]))'
                ' / sum by (model) (rate(gateway_tokens_total{model=~"$model", kind="input"}[$__rate_interval]) > 0)',
                "{{model}}",
            ),
            unit="percentunit",
            highest=1,
        ),
        curves(
            "Back to the engine that knows the prompt",
            "Calls a second that several upstreams could serve and whose run had been at one of them: it went there (`home`), or to another (`away`) "
            "because its own was full for longer than it is worth.",
            Ask("sum by (result) (rate(gateway_affinity_total[$__rate_interval]))", "{{result}}"),
            unit="reqps",
            stacked=True,
            colors={"home": GREEN, "away": ORANGE},
        ),
        curves(
            "Failures",
            "Calls a second that it refused, failed, dropped, or let time out.",
            Ask(f'sum by (upstream, outcome) (rate(gateway_calls_total{{{OF}, outcome=~"engine_.+"}}[$__rate_interval]))', "{{upstream}} {{outcome}}"),
            unit="reqps",
            steps=((None, GREEN),),
        ),
        curves(
            "Input tokens of a call",
            "Half of the prompts are shorter, 95 % are shorter.",
            Ask(
                f'histogram_quantile(0.5, sum by (le) (rate(gen_ai_client_token_usage_bucket{{{AI}, gen_ai_token_type="input"}}[$__rate_interval])))',
                "half are shorter",
            ),
            Ask(
                f'histogram_quantile(0.95, sum by (le) (rate(gen_ai_client_token_usage_bucket{{{AI}, gen_ai_token_type="input"}}[$__rate_interval])))',
                "95 % are shorter",
            ),
        ),
        curves(
            "Another model than declared",
            "Answers a second that name another model; only of engines that name what they have. Mend: `gateway doctor` compares; "
            "`models` of the upstream in gateway.toml gives each its name at the engine.",
            Ask(f'sum by (upstream, model) (rate(gateway_model_mismatch_total{{{OF}, model=~"$model"}}[$__rate_interval]))', "{{upstream}} {{model}}"),
            unit="reqps",
        ),
        curves(
            "Names that answers give",
            "Settled calls a second by the model that the answer names; `_OTHER` is not the declared one. Mend: `gateway doctor` compares; "
            "llama.cpp names its file where it has no alias.",
            Ask(
                f"sum by (upstream, gen_ai_response_model) (rate(gen_ai_client_operation_duration_seconds_count{{{AI}}}[$__rate_interval]))",
                "{{upstream}} {{gen_ai_response_model}}",
            ),
            unit="reqps",
            stacked=True,
            colors={"_OTHER": ORANGE, "": RED},
        ),
    ]
