"""Whether an engine obeys the ceiling: by its running total, else by our own count, and that is made seldom."""

from __future__ import annotations

import orjson
import pytest

from gateway.dialects.openai_chat import OpenAIChat
from gateway.metering.meter import Meter, meter_of
from gateway.proxy.relay import CapIgnored, CeilingWatch

CEILING = 20


class Watched:
    """A stream's events go in; what was asked of the tokenizer is kept. It counts a token for each byte, as for text that no vocabulary knows."""

    def __init__(self, ceiling: int = CEILING, bytes_per_token: int = 1) -> None:
        self.counted: list[str] = []
        self._bytes_per_token = bytes_per_token
        request = OpenAIChat().read_request({"model": "m", "messages": [{"role": "user", "content": "a"}], "stream": True})
        self.meter: Meter = meter_of(
            OpenAIChat().reader(request, "generic"), status=200, content_type="text/event-stream", max_event_bytes=1 << 20, max_response_bytes=1 << 20
        )
        self.watch = CeilingWatch(ceiling, self.meter, self._count)

    async def _count(self, text: str) -> int:
        self.counted.append(text)
        return len(text.encode()) // self._bytes_per_token

    async def event(self, text: str, **more: object) -> None:
        chunk = {"id": "x" * 200, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], **more}
        self.meter.feed(b"data: " + orjson.dumps(chunk) + b"\n\n")
        self.watch.content()
        await self.watch.check()


async def test_an_engine_that_obeys_is_not_counted_however_long_its_envelopes_are() -> None:
    watched = Watched()
    for _ in range(CEILING):
        await watched.event("four")
    assert watched.counted == []


async def test_bytes_that_are_no_text_do_not_cut_an_engine_that_obeys() -> None:
    """Each token of a random model decodes to a character of three bytes."""
    watched = Watched()
    for _ in range(CEILING + 5):
        await watched.event("\ufffd")
    assert all("\ufffd" not in text for text in watched.counted)


async def test_one_event_more_than_the_ceiling_is_counted_and_cut_where_it_holds_more_tokens() -> None:
    watched = Watched(bytes_per_token=4)
    for _ in range(CEILING):
        await watched.event("four")
    with pytest.raises(CapIgnored):
        await watched.event("four")
    assert len(watched.counted) == 1


async def test_many_tokens_an_event_are_found_by_the_bytes_that_were_delivered() -> None:
    watched = Watched(bytes_per_token=4)
    with pytest.raises(CapIgnored):
        for _ in range(CEILING):
            await watched.event("a good many words at once, more than any one token holds ")
    assert len(watched.counted) == 1


async def test_an_engine_that_says_how_many_it_made_is_believed_and_never_counted() -> None:
    watched = Watched()
    await watched.event("x" * 10_000, usage={"prompt_tokens": 1, "completion_tokens": CEILING, "total_tokens": CEILING + 1})
    with pytest.raises(CapIgnored):
        await watched.event("x", usage={"prompt_tokens": 1, "completion_tokens": CEILING + 1, "total_tokens": CEILING + 2})
    assert watched.counted == []


async def test_a_stream_of_more_events_than_tokens_is_counted_again_only_after_what_was_left() -> None:
    watched = Watched(bytes_per_token=100)
    for _ in range(200):
        await watched.event("x")
    assert len(watched.counted) <= 200 // (CEILING - 2)


async def test_tokens_of_many_bytes_each_in_its_own_event_are_not_counted() -> None:
    watched = Watched()
    for _ in range(CEILING):
        await watched.event("parliament ")
    assert watched.counted == []
