from __future__ import annotations

from gateway.accounting.limit import Scope
from gateway.accounting.quantity import Quantity
from gateway.policy import (
    GatewayLimits,
    LoadedPolicy,
    attempts_limit,
    call_caps,
    effective,
    limits_hash,
    policy_from_text,
    resolve_limits,
    run_limits,
    span_limit,
    wall_limits,
)
from gateway.policy.declared import dotted

TEXT = """
apis = ["openai.chat"]
timezone = "Asia/Shanghai"
[models.small]
[models."qwen3.6:35b"]
[lanes.foreground]
[lanes.background]
[call]
prompt_tokens = 9_000
output_tokens = 1_000
[call.background]
output_tokens = 500
[call.background.model."qwen3.6:35b"]
prompt_tokens = 100
[run]
requests = 50
concurrent = 2
[run.model."qwen3.6:35b"]
output_tokens = 9_000
[run.foreground]
requests = 40
[run.background]
requests = 20
[run.background.model."qwen3.6:35b"]
requests = 10
[run.day]
requests = 45
[campaign]
runs = 9
requests = 140
[campaign.day]
runs = 3
[campaign.background.day]
requests = 30
"""
GATEWAY = GatewayLimits.model_validate({"requests": 1000, "timezone": "UTC", "day": {"requests": 500}})
NOON = 1_790_913_600_000
"""2026-10-02 12:00 in Shanghai, 04:00 UTC."""


def loaded(text: str = TEXT) -> LoadedPolicy:
    return policy_from_text(text, "policies/pilot.toml")


def resolve(lane: str, model: str) -> list[str]:
    return [limit.name for limit in resolve_limits(loaded().policy, GATEWAY, campaign="c", run="r", lane=lane, model=model, now_ms=NOON)]


def test_limits_are_resolved_narrow_to_broad() -> None:
    assert resolve("background", "qwen3.6:35b") == [
        'run.background.model."qwen3.6:35b".requests',
        "run.background.requests",
        'run.model."qwen3.6:35b".output_tokens',
        "run.day.requests",
        "run.requests",
        "run.concurrent",
        "campaign.background.day.requests",
        "campaign.requests",
        "gateway.day.requests",
        "gateway.requests",
    ]


def test_a_limit_of_another_lane_or_model_does_not_concern_a_call() -> None:
    names = resolve("foreground", "small")
    assert names == [
        "run.foreground.requests",
        "run.day.requests",
        "run.requests",
        "run.concurrent",
        "campaign.requests",
        "gateway.day.requests",
        "gateway.requests",
    ]


def test_an_account_names_subject_lane_model_and_window() -> None:
    limits = resolve_limits(loaded().policy, GATEWAY, campaign="c", run="r", lane="background", model="qwen3.6:35b", now_ms=NOON)
    accounts = {limit.name: limit.account.key for limit in limits}
    assert accounts['run.background.model."qwen3.6:35b".requests'] == "run|c/r|background|qwen3.6:35b|requests|"
    assert accounts["campaign.background.day.requests"] == "campaign|c|background||requests|day 2026-10-02 Asia/Shanghai"
    assert accounts["gateway.day.requests"] == "gateway||||requests|day 2026-10-02 UTC"
    assert len(set(accounts.values())) == len(accounts)


def test_a_window_ends_at_its_own_midnight_and_a_lifetime_never() -> None:
    ends = {
        limit.name: limit.window_end_ms
        for limit in resolve_limits(loaded().policy, GATEWAY, campaign="c", run="r", lane="background", model="small", now_ms=NOON)
    }
    assert ends["campaign.background.day.requests"] == NOON + 12 * 3_600_000
    assert ends["gateway.day.requests"] == NOON + 20 * 3_600_000
    assert ends["campaign.requests"] is None


def test_after_midnight_the_account_is_another_one() -> None:
    def account(now_ms: int) -> str:
        limits = resolve_limits(loaded().policy, GATEWAY, campaign="c", run="r", lane="background", model="small", now_ms=now_ms)
        return next(limit.account.window for limit in limits if limit.name == "campaign.background.day.requests")

    midnight = NOON + 12 * 3_600_000
    assert account(midnight - 1) == "day 2026-10-02 Asia/Shanghai"
    assert account(midnight) == "day 2026-10-03 Asia/Shanghai"


def test_a_limit_says_where_it_was_set() -> None:
    here = loaded()
    limits = resolve_limits(here.policy, GatewayLimits(), campaign="c", run="r", lane="foreground", model="small", now_ms=NOON, origins=here.origins)
    assert {limit.name: limit.origin for limit in limits}["campaign.requests"] == "policies/pilot.toml:30"
    lines = TEXT.splitlines()
    for name, origin in here.origins.items():
        assert lines[int(origin.rsplit(":", 1)[1]) - 1].split(" = ")[0] == name.rsplit(".", 1)[1]


def test_runs_are_limited_when_a_run_opens_and_not_at_a_call() -> None:
    limits = run_limits(loaded().policy, GATEWAY, "c", NOON)
    assert [(limit.name, limit.ceiling) for limit in limits] == [("campaign.day.runs", 3), ("campaign.runs", 9)]
    assert all(limit.account.scope is Scope.CAMPAIGN and limit.account.subject == "c" for limit in limits)
    calls = resolve_limits(loaded().policy, GATEWAY, campaign="c", run="r", lane="background", model="small", now_ms=NOON)
    assert all(limit.account.quantity is not Quantity.RUNS for limit in calls)


def test_the_smallest_cap_of_a_call_holds_and_says_its_name() -> None:
    caps = call_caps(loaded().policy, "background", "qwen3.6:35b")
    assert (caps.prompt_tokens, caps.prompt_limit) == (100, 'call.background.model."qwen3.6:35b".prompt_tokens')
    assert (caps.output_tokens, caps.output_limit) == (500, "call.background.output_tokens")
    caps = call_caps(loaded().policy, "foreground", "small")
    assert (caps.prompt_tokens, caps.output_tokens, caps.output_limit) == (9000, 1000, "call.output_tokens")


def test_a_policy_without_caps_of_a_call_has_none() -> None:
    caps = call_caps(loaded('apis = ["openai.chat"]\n[models.m]\n').policy, "foreground", "m")
    assert (caps.prompt_tokens, caps.output_tokens, caps.output_limit) == (None, None, "")


def test_a_day_may_have_a_zone_of_its_own() -> None:
    here = loaded(TEXT + 'timezone = "Europe/Berlin"\n')
    limits = resolve_limits(here.policy, GATEWAY, campaign="c", run="r", lane="background", model="small", now_ms=NOON)
    windows = {limit.name: limit.account.window for limit in limits}
    assert windows["campaign.background.day.requests"] == "day 2026-10-02 Europe/Berlin"
    assert windows["run.day.requests"] == "day 2026-10-02 Asia/Shanghai"


def test_the_hash_of_the_effective_limits_changes_with_either_file() -> None:
    policy = loaded().policy
    first = limits_hash(policy, GATEWAY)
    assert first == limits_hash(loaded().policy, GatewayLimits.model_validate(GATEWAY.model_dump()))
    assert first != limits_hash(policy, GatewayLimits())
    assert first != limits_hash(loaded(TEXT.replace("= 140", "= 141")).policy, GATEWAY)
    assert effective(policy, GATEWAY)["timezones"] == {
        "run.day.requests": "Asia/Shanghai",
        "campaign.day.runs": "Asia/Shanghai",
        "campaign.background.day.requests": "Asia/Shanghai",
        "gateway.day.requests": "UTC",
    }


def test_a_name_is_the_path_in_toml() -> None:
    assert dotted(("run", "model", "qwen3.6:35b", "output_tokens")) == 'run.model."qwen3.6:35b".output_tokens'
    assert dotted(("run", "model", "small", "day", "requests")) == 'run.model."small".day.requests'


TIMES = TEXT.replace("[run]\n", "[run]\nwall_seconds = 1_800\nattempts_per_task = 2\n").replace("[campaign]\n", "[campaign]\nspan_seconds = 7_200\n")
TIMES = TIMES.replace("[run.foreground]\n", "[run.foreground]\nwall_seconds = 1_200\n").replace("[call]\n", "[call]\ncontext_tokens = 9_500\n")
TIMES = TIMES.replace("[call.background]\n", "[call.background]\ncontext_tokens = 9_400\n").replace("[run.day]\n", "[run.day]\ntool_calls = 5\n")
TIMES = TIMES.replace("[campaign.background.day]\n", "[campaign.background.day]\ntool_calls = 40\n")


def test_deadlines_caps_and_attempts_are_named_limits_but_keep_no_account() -> None:
    here = loaded(TIMES)
    limits = resolve_limits(here.policy, GATEWAY, campaign="c", run="r", lane="foreground", model="small", now_ms=NOON)
    assert {limit.account.quantity for limit in limits} == {Quantity.REQUESTS, Quantity.CONCURRENT, Quantity.TOOL_CALLS}
    named = {"run.wall_seconds", "run.foreground.wall_seconds", "run.attempts_per_task", "campaign.span_seconds", "call.context_tokens"}
    assert named <= set(here.origins)
    assert named <= set(effective(here.policy, GATEWAY)["limits"])  # type: ignore[call-overload]


def test_a_lane_has_its_own_wall_beside_the_run_s() -> None:
    policy = loaded(TIMES).policy
    assert [(item.name, item.ceiling) for item in wall_limits(policy, "foreground")] == [("run.foreground.wall_seconds", 1200), ("run.wall_seconds", 1800)]
    assert [item.name for item in wall_limits(policy, "background")] == ["run.wall_seconds"]
    assert wall_limits(loaded().policy, "background") == ()


def test_span_and_attempts_are_found_or_there_are_none() -> None:
    span, attempts = span_limit(loaded(TIMES).policy), attempts_limit(loaded(TIMES).policy)
    assert span is not None and attempts is not None
    assert (span.name, span.ceiling, attempts.name, attempts.ceiling) == ("campaign.span_seconds", 7200, "run.attempts_per_task", 2)
    assert span_limit(loaded().policy) is None and attempts_limit(loaded().policy) is None


def test_a_call_has_the_smallest_context_that_is_set_and_its_name() -> None:
    policy = loaded(TIMES).policy
    found = [call_caps(policy, lane, "small") for lane in ("background", "foreground")]
    assert [(caps.context_tokens, caps.context_limit) for caps in found] == [(9400, "call.background.context_tokens"), (9500, "call.context_tokens")]
    assert call_caps(loaded().policy, "foreground", "small").context_tokens is None


def test_tool_calls_are_kept_in_every_scope_for_lanes_and_days() -> None:
    policy = loaded(TIMES).policy
    limits = resolve_limits(policy, GATEWAY, campaign="c", run="r", lane="background", model="small", now_ms=NOON)
    found = {limit.name: limit.account.key for limit in limits if limit.account.quantity is Quantity.TOOL_CALLS}
    assert found == {
        "run.day.tool_calls": "run|c/r|||tool_calls|day 2026-10-02 Asia/Shanghai",
        "campaign.background.day.tool_calls": "campaign|c|background||tool_calls|day 2026-10-02 Asia/Shanghai",
    }


def test_where_the_wall_begins_is_part_of_the_limits_hash() -> None:
    opening = TIMES.replace("[run]\n", '[run]\nwall_from = "opening"\n')
    assert limits_hash(loaded(opening).policy, GATEWAY) != limits_hash(loaded(TIMES).policy, GATEWAY)
