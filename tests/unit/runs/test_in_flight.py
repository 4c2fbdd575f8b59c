from __future__ import annotations

import asyncio

import pytest

from gateway.accounting.usage import Outcome
from gateway.runs.in_flight import Handle, InFlight


def test_a_call_that_ends_is_removed_exactly_once() -> None:
    calls = InFlight()
    first = calls.enter("c1", "pilot", "r1", "k1")
    second = calls.enter("c2", "pilot", "r1", "k1")
    first.end()
    first.end()
    assert len(calls) == 1
    assert calls.calls() == (second,)
    assert calls.entered("pilot", "r1") == 2


def test_a_call_ends_with_its_block_also_when_it_fails() -> None:
    calls = InFlight()
    with pytest.raises(RuntimeError), calls.enter("c1", "pilot", "r1", "k1"):
        assert calls.count("pilot", "r1") == 1
        raise RuntimeError
    assert len(calls) == 0


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        (lambda calls: calls.cut_run("pilot", "r1", Outcome.CLOSED_CUT), {"c1", "c2"}),
        (lambda calls: calls.cut_key("pilot", "r1", "k2", Outcome.CLOSED_CUT), {"c2"}),
        (lambda calls: calls.cut_campaign("pilot", Outcome.CLOSED_CUT), {"c1", "c2", "c3"}),
        (lambda calls: calls.cut_everything(Outcome.CLOSED_CUT), {"c1", "c2", "c3", "c4"}),
        (lambda calls: calls.cut_run("pilot", "nobody", Outcome.CLOSED_CUT), set()),
    ],
)
def test_a_cut_finds_the_calls_of_its_run_key_or_campaign_and_no_others(cut, expected) -> None:
    calls = InFlight()
    handles = [
        calls.enter("c1", "pilot", "r1", "k1"),
        calls.enter("c2", "pilot", "r1", "k2"),
        calls.enter("c3", "pilot", "r2", "k3"),
        calls.enter("c4", "other", "r1", "k4"),
    ]
    told: list[str] = []
    for handle in handles:
        handle.on_cut(lambda _outcome, call_id=handle.call_id: told.append(call_id))
    assert cut(calls) == len(expected)
    assert set(told) == expected
    assert {handle.call_id for handle in handles if handle.cut is Outcome.CLOSED_CUT} == expected


def test_the_first_reason_for_a_cut_stays_and_is_told_once() -> None:
    calls = InFlight()
    handle = calls.enter("c1", "pilot", "r1", "k1")
    told: list[Outcome] = []
    handle.on_cut(told.append)
    calls.cut_run("pilot", "r1", Outcome.CLOSED_CUT)
    calls.cut_everything(Outcome.SHUTDOWN_CUT)
    assert handle.cut is Outcome.CLOSED_CUT
    assert told == [Outcome.CLOSED_CUT]


def test_who_asks_after_the_cut_is_told_at_once() -> None:
    calls = InFlight()
    handle = calls.enter("c1", "pilot", "r1", "k1")
    calls.cut_everything(Outcome.SHUTDOWN_CUT)
    told: list[Outcome] = []
    handle.on_cut(told.append)
    assert told == [Outcome.SHUTDOWN_CUT]


def test_a_callback_that_fails_or_ends_its_call_leaves_the_others_to_be_cut() -> None:
    calls = InFlight()
    handles = [calls.enter(f"c{n}", "pilot", "r1", "k1") for n in range(6)]

    def fail(_outcome: Outcome) -> None:
        raise RuntimeError("a fault")

    def end(handle: Handle):
        return lambda _outcome: handle.end()

    for number, handle in enumerate(handles):
        handle.on_cut(fail if number % 2 else end(handle))
    assert calls.cut_run("pilot", "r1", Outcome.CLOSED_CUT) == 6
    assert all(handle.cut for handle in handles)
    assert len(calls) == 3


def test_a_call_that_has_ended_is_not_cut() -> None:
    calls = InFlight()
    handle = calls.enter("c1", "pilot", "r1", "k1")
    told: list[Outcome] = []
    handle.on_cut(told.append)
    handle.end()
    handle._cut(Outcome.CLOSED_CUT)
    assert handle.cut is None
    assert told == []


async def test_drained_waits_for_the_last_call_of_the_run_alone() -> None:
    calls = InFlight()
    mine, other = calls.enter("c1", "pilot", "r1", "k1"), calls.enter("c2", "pilot", "r2", "k2")
    run = asyncio.create_task(calls.drained_run("pilot", "r1"))
    everything = asyncio.create_task(calls.drained())
    await asyncio.sleep(0)
    assert not run.done()
    mine.end()
    await asyncio.wait_for(run, 1)
    assert not everything.done()
    other.end()
    await asyncio.wait_for(everything, 1)
    await calls.drained_run("pilot", "r1")


async def test_drained_goes_on_waiting_where_a_call_enters_as_the_last_one_ends() -> None:
    calls = InFlight()
    first = calls.enter("c1", "pilot", "r1", "k1")
    drained = asyncio.create_task(calls.drained_run("pilot", "r1"))
    await asyncio.sleep(0)
    first.end()
    second = calls.enter("c2", "pilot", "r1", "k1")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not drained.done()
    second.end()
    await asyncio.wait_for(drained, 1)


async def test_who_gives_up_waiting_leaves_nothing_behind() -> None:
    calls = InFlight()
    handle = calls.enter("c1", "pilot", "r1", "k1")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(calls.drained_run("pilot", "r1"), 0.01)
    assert calls._waiters == {}
    handle.end()
