"""Whether an engine obeys the ceiling: by its running total, else by a count that is made seldom and yet at the first event that can pass it."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.openai_chat import OpenAIChat
from gateway.metering.meter import Meter, meter_of
from gateway.proxy.ceiling_watch import CapIgnored, CeilingWatch, Counted
from gateway.upstream.event_sizes import EventSizes

CEILING = 20


class Watched:
    """A stream's events go in; what was asked of the tokenizer is kept. Each word is a token, and so is each byte that is in none."""

    def __init__(self, ceiling: int = CEILING, *, own: bool = True, sizes: EventSizes | None = None, tokens_per_word: int = 1) -> None:
        self.counted: list[str] = []
        self._own = own
        self._tokens_per_word = tokens_per_word
        request = OpenAIChat().read_request({"model": "m", "messages": [{"role": "user", "content": "a"}], "stream": True})
        self.meter: Meter = meter_of(
            OpenAIChat().reader(request, "generic"), status=200, content_type="text/event-stream", max_event_bytes=1 << 20, max_response_bytes=1 << 20
        )
        self.watch = CeilingWatch(ceiling, self.meter, self._count, sizes or EventSizes())

    async def _count(self, text: str) -> Counted:
        self.counted.append(text)
        return Counted(len(text.split()) * self._tokens_per_word, own=self._own)

    async def event(self, text: str, **more: object) -> None:
        chunk = {"id": "x" * 200, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], **more}
        self.meter.feed(b"data: " + orjson.dumps(chunk) + b"\n\n")
        self.watch.events += 1
        await self.watch.check()

    async def cut_at(self, words_of_events: Sequence[int]) -> int:
        """The event, from 0, at which it is cut; as many as there are where it is not."""
        for number, words in enumerate(words_of_events):
            try:
                await self.event("four " * words)
            except CapIgnored:
                return number
        return len(words_of_events)


def passing(words_of_events: Sequence[int], ceiling: int) -> int:
    total = 0
    for number, words in enumerate(words_of_events):
        total += words
        if total > ceiling:
            return number
    return len(words_of_events)


@settings(max_examples=200, deadline=None)
@given(words=st.lists(st.integers(2, 30), max_size=60), ceiling=st.integers(1, 200))
async def test_an_engine_with_several_tokens_an_event_is_cut_at_the_first_that_passes(words: list[int], ceiling: int) -> None:
    assert await Watched(ceiling).cut_at(words) == passing(words, ceiling)


@settings(max_examples=50, deadline=None)
@given(events=st.integers(1, 150), ceiling=st.integers(1, 100))
async def test_an_engine_with_one_token_an_event_is_cut_at_the_first_that_passes(events: int, ceiling: int) -> None:
    assert await Watched(ceiling).cut_at([1] * events) == passing([1] * events, ceiling)


async def test_an_engine_that_obeys_is_counted_once_and_others_of_its_streams_never() -> None:
    sizes = EventSizes()
    first = Watched(4_000, sizes=sizes)
    assert await first.cut_at([1] * 4_000) == 4_000
    assert len(first.counted) == 1
    for ceiling in (10, 300, 4_000):
        later = Watched(ceiling, sizes=sizes)
        assert await later.cut_at([1] * ceiling) == ceiling
        assert later.counted == []


async def test_a_short_answer_under_a_high_ceiling_is_never_counted() -> None:
    watched = Watched(4_000)
    assert await watched.cut_at([1] * 799) == 799
    assert watched.counted == []


async def test_what_is_known_of_an_engine_does_not_hide_that_it_sends_more_an_event_now() -> None:
    sizes = EventSizes()
    await Watched(400, sizes=sizes).cut_at([1] * 400)
    assert await Watched(400, sizes=sizes).cut_at([4] * 200) == 100
    again = Watched(400, sizes=sizes)
    assert await again.cut_at([1] * 400) == 400 and again.counted, "one that did so once is counted again"


async def test_a_stream_of_many_tokens_an_event_is_counted_a_few_dozen_times_however_long() -> None:
    watched = Watched(100_000)
    assert await watched.cut_at([5] * 30_000) == 20_000
    assert len(watched.counted) < 60


async def test_another_tokenizers_estimate_does_not_cut_an_engine_whose_events_say_that_it_obeys() -> None:
    """As a language that it knows less well: four tokens where the model made three."""
    watched = Watched(300, own=False)
    for number in range(400):
        words = "four four " if number % 3 == 0 else "four "
        if number < 300:
            await watched.event(words)
        else:
            with pytest.raises(CapIgnored):
                await watched.event(words)
            return


async def test_another_tokenizers_estimate_cuts_where_events_hold_several_tokens() -> None:
    assert await Watched(100, own=False).cut_at([3] * 60) == 33


async def test_bytes_that_are_no_text_do_not_cut_an_engine_that_obeys() -> None:
    """Each token of a random model decodes to a character of three bytes."""
    watched = Watched()
    for _ in range(CEILING + 5):
        await watched.event("\ufffd")
    assert watched.counted and all("\ufffd" not in text for text in watched.counted)


async def test_an_engine_that_says_how_many_it_made_is_believed_and_never_counted() -> None:
    watched = Watched()
    await watched.event("x " * 10_000, usage={"prompt_tokens": 1, "completion_tokens": CEILING, "total_tokens": CEILING + 1})
    with pytest.raises(CapIgnored):
        await watched.event("x", usage={"prompt_tokens": 1, "completion_tokens": CEILING + 1, "total_tokens": CEILING + 2})
    assert watched.counted == []


async def test_tokens_of_many_bytes_each_in_its_own_event_cost_one_count() -> None:
    watched = Watched()
    for _ in range(CEILING):
        await watched.event("parliamentarianism ")
    assert len(watched.counted) == 1
