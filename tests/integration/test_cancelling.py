"""Looks at a scripted engine after calls were left there: how many, when, and what stands on record of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson

from gateway.accounting.commands import Command, Event
from gateway.accounting.entries import Posting
from gateway.engines import ENGINES
from gateway.mock_engine import MockEngine
from gateway.upstream import cancelling
from gateway.upstream.at_work import Open
from gateway.upstream.cancelling import Cancelling, Left
from gateway.upstream.forward import Upstream
from tests.support.waiting import eventually_async

AFTER_S = 0.3


@dataclass(eq=False)
class Other:
    """An open call of ours."""

    ceiling: int
    begun: bool = True

    def open(self) -> Open:
        return Open(ceiling=self.ceiling, pieces=1, begun=self.begun)


@dataclass
class Looks:
    engine: MockEngine
    upstream: Upstream
    cancelling: Cancelling
    events: list[Event] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    def left(self, call_id: str = "c", ceiling: int = 300) -> None:
        self.cancelling.left(self.upstream, Left(call_id=call_id, campaign="camp", run="r", ceiling=ceiling, pieces=1))

    async def told(self, calls: int = 1) -> list[tuple[str, str]]:
        await eventually_async(lambda: len(self.results) >= calls, "the engine was asked")
        return [(event.call_id, str(event.details["found"])) for event in self.events]

    def asked(self) -> int:
        return sum(record.path == self.upstream.engine.work_path for record in self.engine.log)


@asynccontextmanager
async def looking(engine: MockEngine, kind: str = "llama.cpp") -> AsyncIterator[Looks]:
    upstream = Upstream(name="u", address=engine.url, engine=ENGINES[kind])
    events: list[Event] = []
    results: list[str] = []

    def post(command: Command) -> asyncio.Future[Posting]:
        assert isinstance(command, Event)
        events.append(command)
        done: asyncio.Future[Posting] = asyncio.get_running_loop().create_future()
        done.set_result(Posting(entries=(), lines=(), content={}))
        return done

    made = Cancelling(post, lambda: 7, lambda _upstream, result: results.append(result), look_after_s=AFTER_S)
    yield Looks(engine, upstream, made, events, results)
    await made.stop()
    await upstream.close()


@asynccontextmanager
async def working(upstream: Upstream, ceiling: int) -> AsyncIterator[Callable[[], None]]:
    """A stream at the engine; what is given leaves it."""
    async with contextlib.AsyncExitStack() as stack:
        body = orjson.dumps({"model": "mock", "stream": True, "max_tokens": ceiling, "messages": [{"role": "user", "content": "hi"}]})
        answer = await stack.enter_async_context(upstream.send("/v1/chat/completions", body))
        await anext(answer.chunks())
        yield answer.leave


async def test_an_engine_that_stopped_confirms_it_and_nothing_is_on_record(engine: MockEngine) -> None:
    engine.script(gap_ms=20)
    async with looking(engine) as looks, working(looks.upstream, 300) as leave:
        leave()
        looks.left()
        assert looks.asked() == 0
        assert await looks.told() == []
        assert (looks.results, looks.asked()) == (["confirmed"], 1)


async def test_an_engine_that_works_on_is_on_record(engine: MockEngine) -> None:
    engine.script(gap_ms=20, ignores_leaving=True)
    async with looking(engine) as looks, working(looks.upstream, 300) as leave:
        leave()
        looks.left()
        assert await looks.told() == [("c", "still_at_work")]
        assert looks.results == ["unconfirmed"]
        event = looks.events[0]
        assert (event.name, event.campaign, event.run, event.at_ms, event.details["upstream"]) == ("cancel_unconfirmed", "camp", "r", 7, "u")


async def test_other_calls_on_other_slots_are_not_taken_for_the_left_one(engine: MockEngine) -> None:
    engine.script(gap_ms=20)
    async with looking(engine) as looks, working(looks.upstream, 300), working(looks.upstream, 299), working(looks.upstream, 300) as leave:
        looks.cancelling.opened("u", Other(300))
        looks.cancelling.opened("u", Other(299))
        leave()
        looks.left()
        assert await looks.told() == []
        assert looks.results == ["confirmed"]


async def test_an_open_call_that_ends_while_the_engine_is_asked_hides_nothing(engine: MockEngine) -> None:
    engine.script(gap_ms=20, ignores_leaving=True)
    async with looking(engine) as looks, working(looks.upstream, 300) as leave:
        other = Other(300, begun=False)
        looks.cancelling.opened("u", other)
        leave()
        looks.left()
        assert await looks.told() == [("c", "cannot_be_told_apart")]
        assert looks.results == ["unknown"]
        looks.cancelling.closed("u", other)


async def test_a_call_is_not_blamed_for_what_an_earlier_one_left_behind(engine: MockEngine) -> None:
    engine.script(gap_ms=20, ignores_leaving=True)
    async with looking(engine) as looks, working(looks.upstream, 300) as leave:
        leave()
        looks.left("first")
        await looks.told()
        engine.script(gap_ms=20)
        async with working(looks.upstream, 300) as leave_second:
            leave_second()
            looks.left("second")
            assert await looks.told(2) == [("first", "still_at_work")]
            assert looks.results == ["unconfirmed", "confirmed"]


async def test_many_that_leave_at_once_are_one_look_and_looks_keep_their_distance(engine: MockEngine) -> None:
    async with looking(engine) as looks:
        for number in range(200):
            looks.left(f"c{number}")
        await looks.told(200)
        assert looks.asked() == 1
        looks.left("late")
        await looks.told(201)
        first, second = (record.arrival.monotonic_ns for record in engine.log if record.path == "/slots")
        assert (second - first) / 1e9 >= AFTER_S
        assert set(looks.results) == {"confirmed"}


async def test_a_call_is_never_asked_about_too_soon(engine: MockEngine) -> None:
    engine.script(gap_ms=20)
    async with looking(engine) as looks:
        looks.left("early", 1)
        await asyncio.sleep(AFTER_S * 0.8)
        looks.left("later", 2)
        await looks.told(1)
        assert looks.results == ["confirmed"]
        await looks.told(2)
        assert looks.asked() == 2


async def test_more_than_can_wait_are_on_record_as_not_asked(engine: MockEngine) -> None:
    async with looking(engine) as looks:
        for number in range(cancelling.LEFT_MAX + 2):
            looks.left(str(number))
        assert [event.details["found"] for event in looks.events] == ["not_asked"] * 2
        assert looks.results == ["unknown"] * 2


async def test_engines_with_metrics_are_asked_by_these(engine: MockEngine) -> None:
    for kind, found, result in (("vllm", "still_at_work", "unconfirmed"), ("sglang", "number_may_be_an_old_one", "unknown")):
        engine.script(gap_ms=20, ignores_leaving=True)
        async with looking(engine, kind) as looks, working(looks.upstream, 50) as leave:
            leave()
            looks.left()
            assert (await looks.told(), looks.results) == ([("c", found)], [result])
        await engine.saw(lambda log: all(record.end for record in log))
        async with looking(engine, kind) as looks:
            looks.left()
            assert (await looks.told(), looks.results) == ([], ["confirmed"])


async def test_what_cannot_be_asked_is_recorded_as_that_and_not_assumed(engine: MockEngine) -> None:
    for kind in ("generic", "ollama"):
        async with looking(engine, kind) as looks:
            looks.left()
            assert [event.details["found"] for event in looks.events] == ["engine_cannot_be_asked"]
            assert looks.results == ["unknown"]
    for status, found in ((501, "engine_cannot_be_asked"), (404, "engine_cannot_be_asked"), (401, "engine_cannot_be_asked"), (500, "engine_did_not_answer")):
        engine.playbook.slots_status = status
        async with looking(engine) as looks:
            looks.left()
            assert (await looks.told(), looks.results) == ([("c", found)], ["unknown"])


async def test_an_engine_that_is_gone_is_on_record_as_one_that_did_not_answer() -> None:
    async with MockEngine() as gone:
        pass
    async with looking(gone) as looks:
        looks.left()
        assert (await looks.told(), looks.results) == ([("c", "engine_did_not_answer")], ["unknown"])


async def test_at_the_end_nothing_is_waited_for_and_what_was_not_asked_is_on_record(engine: MockEngine) -> None:
    async with looking(engine) as looks:
        looks.left("waits")
        await looks.cancelling.stop()
        looks.left("after")
        assert await looks.told(2) == [("waits", "not_asked"), ("after", "not_asked")]
        await asyncio.sleep(AFTER_S * 1.5)
        assert looks.asked() == 0
