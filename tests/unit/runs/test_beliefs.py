"""A belief passes only if it names exactly one thing and states exactly its value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.declaration import GatewayLimits
from gateway.policy.declared import Declared
from gateway.policy.loading import policy_from_text
from gateway.runs.beliefs import Value, differences, endings, fits, nearest
from gateway.runs.budget import concerned
from gateway.runs.declined import Declined
from tests.unit.runs.paper import World, policy

TEXT = """
apis = ["openai.chat"]
timezone = "Asia/Shanghai"

[models.m]
counter = "bytes"
overhead_tokens = 10
[models."qwen3.6:35b"]
counter = "bytes"
overhead_tokens = 10

[lanes.foreground]
models = ["m"]
[lanes.background]

[call]
output_tokens = 8192

[run]
requests = 60
wall_seconds = 1800
[run.foreground]
requests = 50
[run.background.model."qwen3.6:35b"]
output_tokens = 7

[campaign]
runs = 20
requests = 140
[campaign.background.day]
requests = 30
"""
POLICY = policy_from_text(TEXT, "p.toml").policy
ALL = concerned(POLICY, GatewayLimits())
HASHES = {"policy": "a" * 64, "limits": "b" * 64}


def why(expected: dict[str, Value], lane: str = "") -> dict[str, str]:
    return {each.name: each.why for each in differences(expected, HASHES, concerned(POLICY, GatewayLimits(), lane), ALL)}


@pytest.mark.parametrize("item", ALL, ids=lambda item: item.name)
def test_every_limit_is_known_by_its_whole_name_and_a_value_that_is_one_off_is_a_difference(item: Declared) -> None:
    assert why({item.name: item.ceiling}) == {}
    for other in (item.ceiling - 1, item.ceiling + 1, str(item.ceiling)):
        assert why({item.name: other}) == {item.name: "differs"}


@given(st.sampled_from(ALL), st.data())
def test_an_ending_passes_exactly_where_it_fits_exactly_one(item: Declared, data: st.DataObject) -> None:
    ending = data.draw(st.sampled_from((item.name, *endings(item))))
    by_hand = [each for each in ALL if each.name == ending] or [each for each in ALL if each.name.endswith(f".{ending}")]
    assert list(fits(ending, ALL)) == by_hand
    assert why({ending: item.ceiling}) == ({} if len(by_hand) == 1 else {ending: "ambiguous"})


def test_an_ending_is_looked_for_among_the_lanes_limits_first() -> None:
    assert why({"foreground.requests": 50, "day.requests": 30}, "foreground") == {}  # a day of another lane is meant all the same
    assert why({'model."qwen3.6:35b".output_tokens': 7}, "background") == {}
    assert why({"requests": 50}) == {"requests": "ambiguous"}
    assert why({"wall_seconds": 1800, "runs": 20, "call.output_tokens": 8192}) == {}


@pytest.mark.parametrize("name", ["", "request", "run.request", "equests", '6:35b".output_tokens', "35b", ".requests", "run", "run.", "Policy"])
def test_what_names_no_limit_is_a_difference(name: str) -> None:
    assert why({name: 60}) == {name: "unknown"}


def test_a_slip_is_told_the_name_that_was_meant() -> None:
    meant = {"wall_second": "run.wall_seconds", "run.foregroud.requests": "run.foreground.requests", "run.request": "run.requests", "xyz": ""}
    assert {name: nearest(name, ALL) for name in meant} == meant


def test_the_hashes_are_named_policy_and_limits() -> None:
    assert why(dict(HASHES)) == {}
    assert why({"policy": "b" * 64, "limits": 1}) == {"policy": "differs", "limits": "differs"}


def test_a_difference_says_in_words_what_is_so() -> None:
    unlike = differences({"day.requests": 40, "requests": 1, "run.request": 2, "policy": "x", "run.requests": "60"}, HASHES, ALL, ALL)
    assert [each.words for each in unlike] == [
        "day.requests (campaign.background.day.requests) is 30, not 40",
        "requests fits 4 limits: run.foreground.requests, run.requests, campaign.background.day.requests, campaign.requests; name one of them",
        "run.request is no limit here; the nearest is run.requests",
        f"policy is {'a' * 64}, not x",
        "run.requests is 60, not the text 60",
    ]
    assert unlike[0].view()["limit"] == "campaign.background.day.requests"


async def test_a_passed_preflight_is_on_record_once_a_run_and_a_failed_one_is_not() -> None:
    world = World()
    await world.open("r1")
    assert await world.runs.preflight("pilot", "r1", {"run.requests": 11})
    assert world.book.kinds().count("Event") == 0
    for _ in range(3):
        assert await world.runs.preflight("pilot", "r1", {"run.requests": 10}) == ()
    assert world.book.kinds().count("Event") == 1
    assert world.runs.run("pilot", "r1").preflighted


async def test_a_preflight_of_nothing_of_no_lane_or_of_no_run_is_declined() -> None:
    world = World()
    await world.open("r1")
    for run, expected, lane in (("r1", {}, ""), ("r1", {"run.requests": 10}, "sideways"), ("r2", {"run.requests": 10}, "")):
        with pytest.raises(Declined):
            await world.runs.preflight("pilot", run, expected, lane)
    assert not world.runs.run("pilot", "r1").preflighted
    assert policy().policy.agent.require_preflight is False
