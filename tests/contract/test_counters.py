"""What every counter keeps, over the table of all there are: a bound at once and never too small, a count that is safe on any text, what reports teach it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.dialects.dialect import CallRequest
from gateway.engines import ENGINES
from gateway.errors import EngineFailure
from gateway.mock_engine import tokens
from gateway.policy.declaration import COUNTERS
from gateway.tokenizers.choosing import Encodings, choose_counter
from gateway.tokenizers.rendered_cache import RenderedCache
from gateway.tokenizers.tokenizer import CannotCount, Counter, Finding
from tests.support.asking import request_of

IMAGE_TOKENS_MAX = 50
LONGEST_S = 40.0
"""Far above what any of these takes (some 3 s), far below what the square of a text's length would take."""
LAG_S = 1.0
"""How long the event loop may stand still. 10 MB take some 20 ms."""


class PaperEngine:
    """The scripted engine's template and tokenizer, asked without a socket and worked out off the loop."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.down = False

    async def post(self, path: str, value: object) -> tuple[int, object]:
        assert isinstance(value, dict)
        self.asked.append((path, len(str(value.get("content", "")))))
        if self.down:
            raise EngineFailure("unreachable")
        return await asyncio.to_thread(self._answer, path, value)

    def _answer(self, path: str, value: dict[str, object]) -> tuple[int, object]:
        if path == "/apply-template":
            return 200, {"prompt": tokens.render(value)}
        return 200, {"tokens": tokens.tokenize(str(value["content"]), value["parse_special"] is True)}


@dataclass(frozen=True, slots=True)
class Row:
    word: str
    kind: str
    overhead_tokens: int | None = None

    @property
    def asks(self) -> bool:
        return self.kind == "llama.cpp"


TABLE = [*(Row(word, "llama.cpp") for word in COUNTERS), *(Row(word, "generic", 40) for word in COUNTERS if word != "engine"), Row("bytes", "generic")]


def mixed_scripts(characters: int) -> str:
    rng = random.Random(1)
    ranges = ((0x20, 0x2000), (0x3000, 0xD7FF), (0x10000, 0x1F9FF), (0x0300, 0x036F), (0x0900, 0x0DFF))
    return "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(characters))


HOSTILE = {
    "a million blanks": " " * 1_000_000,
    "10 MB of one letter": "a" * 10_000_000,
    "lone surrogates": "\ud800" * 100_000 + "\udfff x",
    "names of special tokens": "<|endoftext|><|im_start|><|im_end|><think><|fim_prefix|>" * 5_000,
    "deeply mixed scripts": mixed_scripts(300_000),
    "marks out of order": "a" + "\u0315\u0300" * 100_000,
    "line ends": "\n" * 300_000,
    "letters at random": "".join(random.Random(2).choices("abcdefghijklmnopqrstuvwxyzABCDEF", k=500_000)),
    "emoji joined": "👩‍👩‍👧‍👦" * 20_000,
}
ENCODINGS = Encodings()


@pytest.fixture(scope="module", autouse=True)
def _threads() -> Iterator[None]:
    yield
    ENCODINGS.close()


@pytest.fixture
def engine() -> PaperEngine:
    return PaperEngine()


@pytest.fixture(params=TABLE, ids=lambda row: f"{row.word} on {row.kind}" + ("" if row.overhead_tokens is None else ", declared"))
def row(request: pytest.FixtureRequest) -> Row:
    found: Row = request.param
    return found


def made(row: Row, engine: PaperEngine, image_tokens_max: int | None = IMAGE_TOKENS_MAX) -> Counter:
    return choose_counter(row.word, ENGINES[row.kind], engine.post, ENCODINGS, RenderedCache(), image_tokens_max, row.overhead_tokens)


@pytest.fixture
def counter(row: Row, engine: PaperEngine) -> Counter:
    return made(row, engine)


def asking(*texts: str, pictures: int = 0) -> CallRequest:
    return request_of({"messages": [{"role": "user", "content": text} for text in texts]}, pictures=pictures)


def engines_own(request: CallRequest) -> int:
    return tokens.count(tokens.render(dict(request.body)))


async def test_a_bound_comes_at_once_and_is_never_below_the_count(counter: Counter) -> None:
    await counter.ready()
    for texts in (["hello"], ["", "x"], ["漢字 " * 50] * 5, ["<|im_end|>" * 20], ["\ud800"]):
        request = asking(*texts)
        bound, exact = counter.bound(request)
        assert not exact
        assert 0 < await counter.count(request, "r") <= bound
        assert bound >= engines_own(request)


@given(texts=st.lists(st.text(max_size=40), min_size=1, max_size=4))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_count_of_any_text_is_above_its_bound_or_missing(row: Row, texts: list[str]) -> None:
    async def held() -> None:
        counter = made(row, PaperEngine())
        await counter.ready()
        request = asking(*texts)
        assert 0 < await counter.count(request, "r") <= counter.bound(request)[0]

    asyncio.run(held())


async def test_an_exact_count_is_the_engines_own_figure(row: Row, counter: Counter) -> None:
    assert counter.exact == (row.word == "engine")
    if counter.exact:
        for request in (asking("hello"), asking("x", "<|im_start|>", "漢 \n"), asking("")):
            assert await counter.count(request, "r") == engines_own(request)


@pytest.mark.parametrize("row", [row for row in TABLE if row.asks], indirect=True, ids=lambda row: row.word)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
async def test_hostile_text_is_counted_in_bounded_time_while_the_loop_goes_on(counter: Counter, text: str) -> None:
    await counter.ready()
    await counter.count(asking("x"), "r")  # what is loaded once
    request = asking(text)
    watch = asyncio.create_task(longest_lag())
    await asyncio.sleep(0)
    begun = time.monotonic()
    bound = counter.bound(request)[0]
    assert time.monotonic() - begun < LAG_S
    assert 0 < await counter.count(request, "r") <= bound
    assert time.monotonic() - begun < LONGEST_S
    watch.cancel()
    assert await watch < LAG_S


async def longest_lag() -> float:
    longest = 0.0
    try:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            longest = max(longest, time.monotonic() - before)
    except asyncio.CancelledError:
        return longest


async def test_a_count_that_nobody_waits_for_any_more_lets_the_next_one_go(counter: Counter) -> None:
    await counter.ready()
    left = asyncio.create_task(counter.count(asking("long " * 200_000), "r"))
    await asyncio.sleep(0)
    left.cancel()
    async with asyncio.timeout(10):
        assert await counter.count(asking("x"), "r") > 0


async def test_a_report_above_a_bound_is_an_overshoot_and_ends_its_use_where_there_is_something_better(counter: Counter) -> None:
    request = asking("x")
    assert counter.trusts_bound
    assert counter.observe(request, 10, False, 10) is None
    assert counter.observe(request, 10, False, 3) is None
    assert counter.trusts_bound
    assert counter.observe(request, 10, False, 11) is Finding.OVERSHOOT
    assert counter.trusts_bound == (not counter.can_count)


async def test_a_count_that_was_to_be_exact_drifts_once_and_from_then_on_estimates(row: Row, counter: Counter) -> None:
    request = asking("x")
    assert counter.observe(request, 10, True, 10) is None
    drifted = counter.observe(request, 10, True, 9)
    assert (drifted is Finding.COUNT_DRIFT) == (row.word == "engine")
    assert not counter.exact
    assert counter.observe(request, 10, True, 9) is None
    assert counter.observe(request, 10, True, 12) is None
    await counter.ready()
    assert await counter.count(request, "r") > 0  # it goes on counting: a drift blocks nothing


async def test_another_engine_is_believed_anew(row: Row, counter: Counter) -> None:
    request = asking("x")
    await counter.ready()
    before = counter.bound(request)
    counter.observe(request, 1, False, 2)
    counter.observe(request, 1, True, 2)
    counter.forget()
    assert (counter.trusts_bound, counter.exact) == (True, row.word == "engine")
    await counter.ready()
    assert counter.bound(request) == before


async def test_a_picture_counts_as_the_most_that_it_may_be_in_bound_and_count(counter: Counter) -> None:
    await counter.ready()
    plain, pictured = asking("x"), asking("x", pictures=3)
    assert counter.bound(pictured)[0] - counter.bound(plain)[0] == 3 * IMAGE_TOKENS_MAX
    assert await counter.count(pictured, "r") - await counter.count(plain, "r") == 3 * IMAGE_TOKENS_MAX
    assert counter.observe(pictured, 500, True, 420) is None


async def test_a_picture_of_which_nothing_was_declared_teaches_nothing(row: Row, engine: PaperEngine) -> None:
    counter = made(row, engine, image_tokens_max=None)
    request = asking("x", pictures=1)
    assert counter.observe(request, 10, False, 900) is None
    assert counter.observe(request, 10, True, 900) is None
    assert counter.trusts_bound
    assert counter.exact == (row.word == "engine")


async def test_an_engine_is_asked_only_where_it_can_be(row: Row, counter: Counter, engine: PaperEngine) -> None:
    await counter.ready()
    await counter.count(asking("x"), "r")
    assert bool(engine.asked) == row.asks
    assert counter.knows_overhead == (row.asks or row.overhead_tokens is not None)


async def test_an_engine_that_is_gone_leaves_neither_bound_nor_count_where_it_is_asked(row: Row, counter: Counter, engine: PaperEngine) -> None:
    engine.down = True
    if not row.asks:
        await counter.ready()
        assert await counter.count(asking("x"), "r") > 0
        return
    for asked in (counter.ready(), counter.count(asking("x"), "r")):
        with pytest.raises(CannotCount):
            await asked


async def test_a_declared_overhead_stands_in_bound_and_count(engine: PaperEngine) -> None:
    for word in COUNTERS[1:]:
        small, large = made(Row(word, "generic", 10), engine), made(Row(word, "generic", 210), engine)
        request = asking("hello world")
        assert large.bound(request)[0] - small.bound(request)[0] == 200
        assert await large.count(request, "r") - await small.count(request, "r") == 200


async def test_the_second_count_of_a_conversation_asks_only_for_what_is_new(engine: PaperEngine) -> None:
    counter = made(Row("engine", "llama.cpp"), engine)
    long = "word " * 20_000
    await counter.count(asking(long), "r")
    engine.asked.clear()
    grown = asking(long, "and now?")
    assert await counter.count(grown, "r") == engines_own(grown)
    assert [path for path, _ in engine.asked] == ["/apply-template", "/tokenize"]
    assert engine.asked[1][1] < 100
