"""Utility requests of one run: counted, one at a time, and never a crowd."""

from __future__ import annotations

import asyncio

from gateway.runs.utilities import WAITING_MAX, Utilities


async def test_they_go_one_at_a_time_in_order_and_each_is_counted() -> None:
    utilities, at_work, most, order = Utilities(), 0, 0, []

    async def ask(number: int) -> None:
        nonlocal at_work, most
        async with utilities.turn():
            at_work += 1
            most = max(most, at_work)
            await asyncio.sleep(0)
            order.append(number)
            at_work -= 1

    await asyncio.gather(*map(ask, range(10)))
    assert (most, order, utilities.asked) == (1, list(range(10)), 10)


async def test_beyond_so_many_that_wait_it_is_crowded_until_they_are_done_or_leave() -> None:
    utilities, go = Utilities(), asyncio.Event()

    async def ask() -> None:
        async with utilities.turn():
            await go.wait()

    asked = [asyncio.create_task(ask()) for _ in range(WAITING_MAX - 1)]
    await asyncio.sleep(0)
    assert not utilities.crowded
    asked.append(asyncio.create_task(ask()))
    await asyncio.sleep(0)
    assert utilities.crowded
    asked[-1].cancel()
    await asyncio.gather(asked[-1], return_exceptions=True)
    assert not utilities.crowded
    go.set()
    await asyncio.gather(*asked[:-1])
    assert (utilities.asked, utilities.crowded) == (WAITING_MAX, False)
