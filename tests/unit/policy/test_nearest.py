from __future__ import annotations

import pytest

from gateway.policy.declaration import Policy
from gateway.policy.declared import dotted
from gateway.policy.nearest import nearest
from gateway.policy.shape import Names, leaves, shape_of

NAMES = Names(lanes=("foreground", "background"), models=("small",), apis=("openai.chat",))
RIGHT = [path for path, _ in leaves(shape_of(Policy), NAMES)]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("campaign.day_requests", "campaign.day.requests"),
        ("campaign.requests_per_day", "campaign.day.requests"),
        ("daily_call_budget", "campaign.day.requests"),
        ("background.day.requests", "campaign.background.day.requests"),
        ("campaign.day.background.requests", "campaign.background.day.requests"),
        ("campaign.background.daily_calls", "campaign.background.day.requests"),
        ("background_requests", "run.background.requests"),
        ("run_output_tokens", "run.output_tokens"),
        ("run.max_totl_tokens", "run.total_tokens"),
        ("run.small.requests", 'run.model."small".requests'),
        ("call.max_completion_tokens", "call.output_tokens"),
        ("call.prompt", "call.prompt_tokens"),
        ("run.max_concurrency", "run.concurrent"),
        ("queue_seconds", "admission.queue_seconds"),
        ("admission.cut_streams", "charging.cut_streams"),
        ("tell_agent", "agent.tell_agent"),
        ("max_runs", "campaign.runs"),
        ("campaign.timezon", "campaign.day.timezone"),
    ],
)
def test_the_whole_format_is_searched_for_the_right_name(wrong: str, right: str) -> None:
    found = nearest(tuple(wrong.split(".")), RIGHT)
    assert dotted(found[0]) == right


@pytest.mark.parametrize("wrong", ["xyzzy", "run.xyzzy", "wibble.wobble"])
def test_a_word_that_is_near_to_nothing_is_given_no_wrong_hint(wrong: str) -> None:
    assert nearest(tuple(wrong.split(".")), RIGHT) == []


@pytest.mark.parametrize("path", RIGHT, ids=dotted)
def test_a_right_name_is_nearest_to_itself(path: tuple[str, ...]) -> None:
    assert nearest(path, RIGHT)[0] == path


def test_a_right_name_with_a_letter_lost_is_found_again() -> None:
    """In its table, whatever letter of the last word is missing."""
    for path in RIGHT:
        for at in range(1, len(path[-1])) if len(path[-1]) > 5 else ():
            wrong = (*path[:-1], path[-1][:at] + path[-1][at + 1 :])
            if wrong not in RIGHT:
                assert nearest(wrong, RIGHT)[:1] == [path], wrong
