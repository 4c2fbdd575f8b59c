"""An agent hears of each limit once, and no number that it is told of what is left rises but by a correction."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.runs.telling import Telling, warns_from

CEILING = 1000


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30)), max_size=30))
def test_what_is_told_never_rises_while_only_settlements_come(steps: list[tuple[int, int]]) -> None:
    """Each answer opens some settlements after its call began: its number may be as old as that."""
    telling, settled, history, told = Telling(), 0, [0], []
    for charge, age in steps:
        settled += charge
        history.append(settled)
        before = history[max(0, len(history) - 1 - age)]
        told.append(telling.left("a", CEILING - before, settled))
    assert told == sorted(told, reverse=True)


@given(st.integers(0, CEILING), st.integers(0, CEILING))
def test_it_is_what_was_left_before_the_call_where_nothing_lower_was_told(settled: int, later: int) -> None:
    telling = Telling()
    assert telling.left("a", CEILING - settled, settled) == CEILING - settled
    assert telling.left("b", CEILING - later, later) == CEILING - later  # another account is told by itself


def test_a_correction_lets_it_rise_again() -> None:
    telling = Telling()
    assert telling.left("a", 10, 90) == 10
    assert telling.left("a", 60, 90) == 10
    assert telling.left("a", 60, 40) == 60  # settled has fallen
    assert telling.left("a", 70, 41) == 60


def test_an_account_is_warned_of_once_also_where_a_restart_lies_between() -> None:
    telling = Telling(["run|c/r|||requests|"])
    assert not telling.warn("run|c/r|||requests|")
    assert telling.warn("run|c/r|||output_tokens|")
    assert not telling.warn("run|c/r|||output_tokens|")
    telling.unwarn(["run|c/r|||output_tokens|"])  # the call was not sent
    assert telling.warn("run|c/r|||output_tokens|")


@pytest.mark.parametrize(
    ("warn_at", "ceiling", "expected"), [(0.9, 10, 9), (0.7, 10, 7), (0.9, 1, 1), (1.0, 7, 7), (0.29, 100, 29), (0.9, 11, 10), (0.5, 3, 2)]
)
def test_a_warning_begins_at_just_that_part_in_decimals(warn_at: float, ceiling: int, expected: int) -> None:
    assert warns_from(warn_at, ceiling) == expected


@given(st.integers(1, 1000), st.integers(0, 10**12))
def test_it_begins_at_the_smallest_whole_number_that_is_that_part(thousandths: int, ceiling: int) -> None:
    found = warns_from(thousandths / 1000, ceiling)
    part = Fraction(thousandths, 1000) * ceiling
    assert found >= part > found - 1
