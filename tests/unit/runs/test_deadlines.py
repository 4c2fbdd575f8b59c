from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.runs.deadlines import Deadline, Times, earliest, span_deadline, times_of, wall_deadlines
from gateway.runs.first_calls import FirstCalls
from tests.unit.runs.paper import policy

OPENED_MS = 1_000_000
HEAD = """
schema = 1
apis = ["openai.chat"]
[models.small]
counter = "bytes"
overhead_tokens = 10
[lanes.foreground]
[lanes.background]
"""


def times(text: str) -> Times:
    return times_of(policy(HEAD + text).policy)


def walls(text: str, first_call_ms: dict[str, int]) -> dict[str, int]:
    return {wall.limit_name: wall.at_ms for wall in wall_deadlines(times(text), opened_ms=OPENED_MS, first_call_ms=first_call_ms)}


BOTH = "[run]\nwall_seconds = 60\n[run.background]\nwall_seconds = 10\n"


def test_without_a_wall_or_a_span_there_is_no_deadline() -> None:
    assert wall_deadlines(times(""), opened_ms=OPENED_MS, first_call_ms={"foreground": 5}) == ()
    assert span_deadline(times(""), OPENED_MS) is None


def test_a_wall_counts_from_the_first_call_of_the_run_and_a_lanes_from_the_lanes() -> None:
    assert walls(BOTH, {}) == {}
    assert walls(BOTH, {"foreground": 2_000_000}) == {"run.wall_seconds": 2_060_000}
    assert walls(BOTH, {"foreground": 2_000_000, "background": 2_500_000}) == {"run.background.wall_seconds": 2_510_000, "run.wall_seconds": 2_060_000}
    assert walls(BOTH, {"background": 1_500_000}) == {"run.background.wall_seconds": 1_510_000, "run.wall_seconds": 1_560_000}


def test_a_wall_counts_from_the_opening_where_the_policy_says_so() -> None:
    text = BOTH.replace("[run]\n", '[run]\nwall_from = "opening"\n')
    expected = {"run.background.wall_seconds": OPENED_MS + 10_000, "run.wall_seconds": OPENED_MS + 60_000}
    assert walls(text, {}) == expected
    assert walls(text, {"foreground": 2_000_000}) == expected


def test_a_span_counts_from_the_campaigns_opening() -> None:
    span = span_deadline(times("[campaign]\nspan_seconds = 14400\n"), OPENED_MS, {"campaign.span_seconds": "a.toml:9"})
    assert span is not None
    assert (span.at_ms, span.limit_name, span.code, span.origin) == (OPENED_MS + 14_400_000, "campaign.span_seconds", "window_over", "a.toml:9")


def deadline(at_ms: int, name: str = "run.wall_seconds", lane: str = "") -> Deadline:
    return Deadline(at_ms=at_ms, limit_name=name, ceiling_s=10, started_ms=at_ms - 10_000, code="run_budget_reached", lane=lane)


def test_a_deadline_has_passed_at_its_very_millisecond() -> None:
    end = deadline(20_000)
    assert (end.passed(19_999), end.passed(20_000)) == (False, True)


def test_a_shortfall_counts_in_whole_seconds_and_is_short_of_one() -> None:
    at, later = deadline(20_000).shortfall(20_000), deadline(20_000).shortfall(21_999)
    assert (at.name, at.ceiling, at.settled, at.reserved, at.asked, at.resets_at_ms) == ("run.wall_seconds", 10, 10, 0, 1, None)
    assert later.settled == 11


def test_the_first_deadline_counts_and_of_two_at_one_moment_the_narrower() -> None:
    lane, run, span = deadline(3, "run.a.wall_seconds", "a"), deadline(3), deadline(2, "campaign.span_seconds")
    assert earliest((lane, run, span), "a") is span
    assert earliest((lane, run, None), "a") is lane
    assert earliest((lane, run, None), "b") is run
    assert earliest((), "a") is None


@given(st.integers(0, 2**40), st.integers(1, 10**8), st.integers(-(10**11), 10**11))
def test_what_is_refused_is_short_by_its_own_numbers_and_what_is_not_is_not(started_ms: int, seconds: int, after_ms: int) -> None:
    end = Deadline(at_ms=started_ms + seconds * 1000, limit_name="run.wall_seconds", ceiling_s=seconds, started_ms=started_ms, code="run_budget_reached")
    now_ms = end.at_ms + after_ms
    shortfall = end.shortfall(now_ms)
    assert (shortfall.settled + shortfall.asked > shortfall.ceiling) == end.passed(now_ms)


def test_a_call_that_was_never_sent_starts_no_clock() -> None:
    calls = FirstCalls()
    calls.admitted("foreground", "c1", 10)
    calls.admitted("foreground", "c2", 20)
    assert calls.by_lane() == {"foreground": 10}
    calls.unsent("c1")
    assert calls.by_lane() == {"foreground": 20}
    calls.unsent("c2")
    assert calls.by_lane() == {}


def test_what_was_read_at_the_start_stays_first() -> None:
    calls = FirstCalls({"foreground": 10})
    calls.admitted("foreground", "c1", 20)
    calls.unsent("c1")
    assert calls.by_lane() == {"foreground": 10}


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["sent", "unsent", "open"]), st.integers(0, 3)), max_size=12),
    st.randoms(use_true_random=False),
)
def test_the_first_call_of_a_lane_is_the_earliest_that_was_not_voided(told: list[tuple[str, str, int]], random) -> None:
    calls, at_ms, made = FirstCalls(), 100, []
    for number, (lane, fate, pause_ms) in enumerate(told):
        at_ms += pause_ms
        calls.admitted(lane, f"c{number}", at_ms)
        made.append((f"c{number}", lane, fate, at_ms))
    for call_id, _, fate, _ in random.sample(made, len(made)):
        if fate != "open":
            (calls.sent if fate == "sent" else calls.unsent)(call_id)
    expected = {lane: min(at for _, each, fate, at in made if each == lane and fate != "unsent") for _, lane, fate, _ in made if fate != "unsent"}
    assert calls.by_lane() == expected


@pytest.mark.parametrize("calls", [1, 100])
def test_no_more_is_remembered_than_the_calls_whose_fate_is_open(calls: int) -> None:
    first = FirstCalls()
    first.admitted("a", "c", 1)
    first.sent("c")
    for number in range(calls):
        first.admitted("a", f"c{number}", 2 + number)
    assert first._open == {}
