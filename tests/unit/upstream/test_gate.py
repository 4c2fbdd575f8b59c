"""What a caller sees of the waiting place: commits, counts and clients that leave, in a real event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.accounting.commands import Command, Reserve, Void
from gateway.accounting.entries import Posting
from gateway.errors import CommandRejected, EngineFailure, LedgerUnavailable
from gateway.upstream.call import Admission, Refusal, Refused, Ticket
from gateway.upstream.gate import Gate
from tests.unit.upstream.books import REQUESTS, Books, reserve_of, ticket


def gate_of(books: Books, slots: int = 5) -> Gate:
    return Gate(books.balances, books.post, lambda: 1_000, {"e": slots})


def admit(gate: Gate, wanted: Ticket) -> asyncio.Task[Admission]:
    return asyncio.get_running_loop().create_task(gate.admit(wanted, reserve_of(wanted)))


async def settle_down() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def refusal_of(task: asyncio.Task[Admission]) -> Refusal:
    with pytest.raises(Refused) as caught:
        await task
    return caught.value.refusal


async def test_of_a_hundred_concurrent_calls_against_seven_requests_exactly_seven_are_admitted() -> None:
    books = Books()
    gate = gate_of(books, 1_000)
    answers = await asyncio.gather(*(admit(gate, ticket(str(number), requests=7)) for number in range(100)), return_exceptions=True)
    assert sum(isinstance(answer, Admission) for answer in answers) == 7
    assert {answer.refusal.code for answer in answers if isinstance(answer, Refused)} == {"run_budget_reached"}
    assert books.balances.of(REQUESTS).reserved == 7


async def test_a_reservation_is_durable_when_the_call_is_admitted() -> None:
    books = Books(at_once=False)
    task = admit(gate_of(books), ticket("one"))
    await settle_down()
    assert not task.done() and books.balances.of(REQUESTS).reserved == 1
    books.commit()
    assert (await task).output == 100


async def test_a_slot_given_back_lets_the_next_go() -> None:
    books = Books()
    gate = gate_of(books, 1)
    await admit(gate, ticket("one"))
    second = admit(gate, ticket("two"))
    await settle_down()
    assert [view.call_id for view in gate.waiting()] == ["two"]
    gate.free("e")
    assert (await second).waited_ms == 0 and gate.busy("e") == 1


async def test_a_commit_that_fails_gives_all_back_and_is_a_503_of_the_ledger() -> None:
    books = Books(at_once=False)
    gate = gate_of(books, 1)
    one, two = admit(gate, ticket("one")), admit(gate, ticket("two"))
    await settle_down()
    books.commit(LedgerUnavailable("disk full"))
    refusal = await refusal_of(one)
    assert (refusal.code, refusal.final) == ("ledger_unavailable", False)
    await settle_down()
    books.commit()
    assert (await two).call_id == "two"
    assert books.balances.of(REQUESTS).reserved == gate.busy("e") == 1 and gate.counts.commit_failed == 1


async def test_a_ledger_that_refuses_at_the_call_of_post_is_a_503_too() -> None:
    books = Books()
    gate = Gate(books.balances, raising(LedgerUnavailable("closed")), lambda: 0, {"e": 1})
    assert (await refusal_of(admit(gate, ticket("one")))).code == "ledger_unavailable"
    assert gate.busy("e") == 0 and gate.waiting() == []


def raising(error: Exception) -> Callable[[Command], asyncio.Future[Posting]]:
    def post(command: Command) -> asyncio.Future[Posting]:
        raise error

    return post


async def test_a_reservation_that_is_rejected_is_told_by_what_the_call_s_own_check_says_then() -> None:
    books = Books(at_once=False)
    closed: list[bool] = []
    gate = gate_of(books)
    task = admit(gate, ticket("one", check=lambda now: Refusal(code="run_closed", final=True) if closed else None))
    await settle_down()
    closed.append(True)
    books.commit(CommandRejected("the run is closing"))
    assert (await refusal_of(task)).code == "run_closed"
    assert gate.busy("e") == 0


async def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind() -> None:
    books = Books()
    gate = gate_of(books, 1)
    await admit(gate, ticket("one"))
    second, third = admit(gate, ticket("two")), admit(gate, ticket("three"))
    await settle_down()
    second.cancel()
    await settle_down()
    assert second.cancelled() and [view.call_id for view in gate.waiting()] == ["three"]
    assert [type(command) for command in books.commands] == [Reserve] and gate.counts.left == 1
    gate.free("e")
    await third


@pytest.mark.parametrize("moment", ["while it is committed", "when it is committed, before it is told"])
async def test_a_client_that_leaves_with_its_reservation_is_voided_and_its_slot_given_back(moment: str) -> None:
    books = Books(at_once=False)
    gate = gate_of(books, 1)
    one, two = admit(gate, ticket("one")), admit(gate, ticket("two"))
    await settle_down()
    if moment != "while it is committed":
        books.commit()
    one.cancel()
    await settle_down()
    assert one.cancelled()
    books.at_once = True
    books.commit()
    await gate.settled()
    await two
    assert [(type(command), getattr(command, "call_id", "")) for command in books.commands if isinstance(command, Void)] == [(Void, "one")]
    assert books.balances.of(REQUESTS).reserved == 1 and gate.busy("e") == 1


async def test_a_client_that_leaves_a_reservation_that_fails_voids_nothing() -> None:
    books = Books(at_once=False)
    gate = gate_of(books, 1)
    one = admit(gate, ticket("one"))
    await settle_down()
    one.cancel()
    await settle_down()
    books.commit(LedgerUnavailable("disk full"))
    await gate.settled()
    assert not any(isinstance(command, Void) for command in books.commands)
    assert books.reserved == 0 and gate.busy("e") == 0


async def test_a_client_that_leaves_before_it_hears_of_a_failed_commit_gives_nothing_back_twice() -> None:
    books = Books(at_once=False)
    gate = gate_of(books, 2)
    one, two = admit(gate, ticket("one")), admit(gate, ticket("two"))
    await settle_down()
    books.at_once = True
    failing, books.writing = books.writing[:1], books.writing[1:]
    books.commit()
    books.writing = failing
    books.commit(LedgerUnavailable("disk full"))
    await asyncio.sleep(0)  # the gate has heard of it, the task has not
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    await two
    assert gate.busy("e") == 1 and books.balances.of(REQUESTS).reserved == 1
    assert not any(isinstance(command, Void) for command in books.commands)


async def test_a_prompt_is_counted_once_when_its_bound_does_not_fit() -> None:
    books, counted = Books(), []

    async def count() -> int:
        counted.append(True)
        await asyncio.sleep(0)
        return 40

    admission = await admit(gate_of(books), ticket("one", bound=4_000, count=count))
    assert (admission.prompt_tokens, admission.prompt_exact, counted) == (40, True, [True])


@pytest.mark.parametrize(
    ("error", "code"), [(EngineFailure("unreachable"), "engine_unavailable"), (Refused(Refusal(code="clock", final=False)), "clock"), (KeyError("bug"), None)]
)
async def test_a_count_that_fails_ends_the_call_and_lets_the_next_go(error: Exception, code: str | None) -> None:
    async def count() -> int:
        raise error

    books = Books()
    gate = gate_of(books)
    one, two = admit(gate, ticket("one", bound=4_000, count=count)), admit(gate, ticket("two"))
    if code is None:
        with pytest.raises(KeyError):
            await one
    else:
        assert (await refusal_of(one)).code == code
    await two
    assert gate.waiting() == []


async def test_a_client_that_leaves_while_it_is_counted_ends_the_count() -> None:
    ended = asyncio.Event()

    async def count() -> int:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return 1

    gate = gate_of(Books())
    one = admit(gate, ticket("one", bound=4_000, count=count))
    await settle_down()
    one.cancel()
    await asyncio.wait_for(ended.wait(), 1)
    assert gate.waiting() == []


async def test_a_shutdown_refuses_who_waits_and_who_comes() -> None:
    books = Books()
    gate = gate_of(books, 1)
    await admit(gate, ticket("one"))
    two = admit(gate, ticket("two"))
    await settle_down()
    gate.shutdown()
    for task in (two, admit(gate, ticket("three"))):
        refusal = await refusal_of(task)
        assert (refusal.code, refusal.final) == ("shutting_down", False)


async def test_many_wake_ups_in_one_tick_are_one_pass() -> None:
    books = Books()
    gate = gate_of(books, 1)
    await admit(gate, ticket("one"))
    waiting = admit(gate, ticket("two"))
    await settle_down()
    passes = gate.counts.passes
    for _ in range(50):
        gate.wake()
    await settle_down()
    assert gate.counts.passes == passes + 1
    waiting.cancel()


async def test_a_call_is_clamped_in_time_by_the_loop_s_own_timers() -> None:
    """The whole way with real timers: the wait's end comes, and the call is told."""
    loop, books = asyncio.get_running_loop(), Books()
    gate = Gate(books.balances, books.post, lambda: int(loop.time() * 1000), {"e": 1})
    await admit(gate, ticket("one"))
    impatient = ticket("two")
    impatient.queue_ms = 30
    refusal = await asyncio.wait_for(refusal_of(admit(gate, impatient)), 5)
    assert refusal.code == "busy" and refusal.waited_ms >= 30
