"""Random worlds: no row is given to a call that is not its own, nothing is counted twice, and what is removed is what is missed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.accounting.usage import Usage
from gateway.reconcile.by_usage import pair_by_usage
from gateway.reconcile.fits import Anchors
from gateway.reconcile.known_ids import KnownIds
from gateway.reconcile.ledger_side import LedgerCall
from gateway.reconcile.match import By, Match
from gateway.reconcile.matching import match
from gateway.reconcile.rising import in_every_longest_rise
from tests.unit.reconcile.worlds import World, make

SEEDS = st.integers(0, 2**32)


def matched(world: World) -> list[Match]:
    return match(world.side, world.records, lambda _wanted: KnownIds())


def each_once(world: World, matches: list[Match]) -> None:
    rows = Counter(record.source for each in matches for record in each.records)
    calls = Counter(item.call_id for each in matches for item in each.items)
    assert rows == Counter(record.source for record in world.records)
    assert calls == Counter(call.call_id for call in world.side.calls)


def wrong(world: World, matches: list[Match]) -> list[tuple[Match, str]]:
    return [(each, world.truth[record.source]) for each in matches if each.by for record in each.records if each.items[0].call_id != world.truth[record.source]]


@given(SEEDS)
@settings(max_examples=150, deadline=None)
def test_with_all_records_every_row_finds_its_own_call_and_all_is_equal(seed: int) -> None:
    world = make(seed)
    matches = matched(world)
    each_once(world, matches)
    assert wrong(world, matches) == []
    assert {each.name.value for each in matches} == {"equal"}


@given(SEEDS, st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_rows_that_were_removed_are_exactly_the_calls_that_are_missed(seed: int, share: float) -> None:
    world = make(seed)
    keep = len(world.records) - round(share * len(world.records))
    world.records = world.records[:keep]
    told = {world.truth[record.source] for record in world.records}
    matches = matched(world)
    each_once(world, matches)
    assert wrong(world, matches) == []
    lost = {each.items[0].call_id for each in matches if each.name.value == "record_lost"}
    assert lost == {call.call_id for call in world.side.calls} - told


@given(SEEDS, st.floats(0, 0.5))
@settings(max_examples=150, deadline=None)
def test_where_numbers_collide_a_pair_without_an_id_is_right_or_as_good_as_right(seed: int, share: float) -> None:
    """Where two calls of one session have the same numbers and times that overlap, nothing in the world tells them apart."""
    world = make(seed, few=True)
    world.records = world.records[round(share * len(world.records)) :]
    matches = matched(world)
    each_once(world, matches)
    calls = {call.call_id: call for call in world.side.calls}
    for each, own in wrong(world, matches):
        assert each.by in (By.USAGE_AND_ORDER, By.ORDER)
        assert isinstance(each.items[0], LedgerCall)
        assert each.items[0].usage == calls[own].usage


@pytest.mark.parametrize(
    ("numbers", "sure"),
    [
        ([], set()),
        ([1, 2, 3], {0, 1, 2}),
        ([2, 1], set()),
        ([1, 3, 2, 4], {0, 3}),
        ([10, 2, 3, 4, 1], {1, 2, 3}),
    ],
)
def test_of_two_that_stand_crosswise_neither_is_sure(numbers: list[int], sure: set[int]) -> None:
    assert in_every_longest_rise(numbers) == sure


def test_thousands_of_rows_with_the_same_numbers_are_paired_by_time_and_order_without_trying_all_against_all() -> None:
    world = make(1, runs=1, sessions=1, calls=1)
    call, row = world.side.calls[0], world.records[0]
    calls = [replace(call, call_id=f"c{n}", number=n + 1, admitted_ms=n * 40_000, ended_ms=n * 40_000 + 20_000, session=frozenset()) for n in range(4_000)]
    rows = [
        replace(row, source=f"f:{n}", order=n, at_ms=n * 40_000 + 20_100, response_id="", tool_call_ids=(), session_ids=()) for n in range(4_000) if n != 2_000
    ]
    pairs, undecided = pair_by_usage(calls, rows, Anchors([]))
    assert len(pairs) == 3_999 and undecided == []
    assert all(pair.item.call_id == f"c{pair.record.order}" for pair in pairs)


def test_a_server_that_gives_every_answer_the_same_id_is_matched_by_the_rest() -> None:
    world = make(1, runs=1, sessions=1, calls=1)
    call, row = world.side.calls[0], world.records[0]
    world.side.calls = [
        replace(
            call,
            call_id=f"c{n}",
            number=n + 1,
            admitted_ms=n * 40_000,
            ended_ms=n * 40_000 + 20_000,
            session=frozenset(),
            response_id="chatcmpl-1",
            tool_call_ids=("call_1",),
            usage=Usage(input_tokens=n + 1, output_tokens=7),
        )
        for n in range(3_000)
    ]
    world.records = [
        replace(
            row, source=f"f:{c.number}", order=c.number, at_ms=c.until_ms, usage=c.usage, response_id="chatcmpl-1", tool_call_ids=("call_1",), session_ids=()
        )
        for c in world.side.calls
    ]
    matches = matched(world)
    assert all(each.items[0].number == each.records[0].order and each.name.value == "equal" for each in matches) and len(matches) == 3_000
