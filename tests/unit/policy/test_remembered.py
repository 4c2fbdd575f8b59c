from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy import call_caps, policy_from_text, resolve_limits
from gateway.policy.remembered import Remembered
from tests.unit.policy.test_resolve import GATEWAY, NOON, TEXT, loaded

MODEL = "qwen3.6:35b"
DAY_MS = 86_400_000
times = st.lists(st.integers(NOON - 2 * DAY_MS, NOON + 2 * DAY_MS), min_size=1, max_size=12)


@settings(max_examples=60)
@given(times=times, lanes=st.lists(st.sampled_from(["foreground", "background"]), min_size=12, max_size=12))
def test_what_is_remembered_is_what_would_be_resolved_now(times: list[int], lanes: list[str]) -> None:
    policy = loaded().policy
    remembered = Remembered(GATEWAY)
    for now_ms, lane in zip(times, lanes, strict=False):
        names = {"campaign": "c", "run": "r", "lane": lane, "model": MODEL}
        assert remembered.limits(policy, **names, now_ms=now_ms) == resolve_limits(policy, GATEWAY, **names, now_ms=now_ms)
        assert remembered.caps(policy, lane, MODEL) == call_caps(policy, lane, MODEL)


def test_the_same_limits_are_given_until_a_window_ends() -> None:
    policy = loaded().policy
    remembered = Remembered(GATEWAY)
    names = {"campaign": "c", "run": "r", "lane": "background", "model": MODEL}
    first = remembered.limits(policy, **names, now_ms=NOON)
    ends_ms = min(limit.window_end_ms for limit in first if limit.window_end_ms is not None)
    assert remembered.limits(policy, **names, now_ms=ends_ms - 1) is first
    assert remembered.limits(policy, **names, now_ms=ends_ms) != first


def test_another_policy_under_the_same_names_is_resolved_anew() -> None:
    before = policy_from_text(TEXT, "before").policy
    after = policy_from_text(TEXT.replace("[run]\nrequests = 50", "[run]\nrequests = 49").replace("requests = 45", "requests = 44"), "after").policy
    remembered = Remembered(GATEWAY)
    names = {"campaign": "c", "run": "r", "lane": "foreground", "model": MODEL}
    assert remembered.limits(before, **names, now_ms=NOON) != remembered.limits(after, **names, now_ms=NOON)
    assert remembered.limits(after, **names, now_ms=NOON) == resolve_limits(after, GATEWAY, **names, now_ms=NOON)
