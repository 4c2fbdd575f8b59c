"""What the counters share: asked once, in turns, and taught by reports. The engine is a template and a tokenizer of a few lines."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import orjson
import pytest

from gateway.dialects import DIALECTS
from gateway.dialects.dialect import CallRequest
from gateway.dialects.known import Known, KnownMessages, MessagesRead
from gateway.dialects.structure import Structure
from gateway.engines import ENGINES
from gateway.errors import ConfigurationError, EngineFailure
from gateway.tokenizers import counters
from gateway.tokenizers.choosing import Encodings, choose_counter
from gateway.tokenizers.rendered_cache import RenderedCache
from gateway.tokenizers.shape import shape_of
from gateway.tokenizers.tokenizer import CannotCount, Counter, Finding, PromptRejected
from tests.support.asking import request_of

SPECIAL = re.compile(r"<\|[se]\|>")


class SmallEngine:
    """Renders `<|s|>role text<|e|>`; a special token is one token (or what `lies` says), every other byte is one."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.down = False
        self.at_once = 0
        self.most = 0
        self.lies = False
        self.added = 1
        self.whole: tuple[int, object] = 200, {"input_tokens": 41}

    async def post(self, path: str, value: object) -> tuple[int, object]:
        assert isinstance(value, dict)
        assert orjson.dumps(value)  # as it would go out
        self.asked.append(path)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await asyncio.sleep(0)
            if self.down:
                raise EngineFailure("unreachable")
            if path in ("/v1/responses/input_tokens", "/v1/messages/count_tokens"):
                return self.whole
            return self.render(value) if path == "/apply-template" else self.tokenize(value)
        finally:
            self.at_once -= 1

    def render(self, value: dict[str, Any]) -> tuple[int, object]:
        if any(message.get("role") == "bad" for message in value["messages"]):
            return 400, {"error": {"message": "no such role"}}
        tools = "".join(f"{tool}" for tool in value.get("tools", []))
        turns = "".join(f"<|s|>{message['role']} {message['content']}<|e|>" for message in value["messages"])
        return 200, {"prompt": f"{tools}{turns}<|s|>assistant"}

    def tokenize(self, value: dict[str, Any]) -> tuple[int, object]:
        text = value["content"] if isinstance(value["content"], str) else "".join(value["content"])
        ids = [1] * (self.added if value["add_special"] else 0)
        if not value["parse_special"]:
            return 200, {"tokens": [*ids, *text.encode()]}
        place = 0
        for found in SPECIAL.finditer(text):
            ids += [*text[place : found.start()].encode(), *([300, 300] if self.lies and place else [300 if found.group() == "<|s|>" else 301])]
            place = found.end()
        return 200, {"tokens": [*ids, *text[place:].encode()]}


@pytest.fixture
def engine() -> SmallEngine:
    return SmallEngine()


def counter_of(engine: SmallEngine, word: str = "engine") -> Counter:
    return choose_counter(word, ENGINES["llama.cpp"], engine.post, Encodings(), RenderedCache(), 50)


def said(*texts: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in texts]}


def tokens_of(engine: SmallEngine, body: dict[str, Any]) -> int:
    _, rendered = engine.render(body)
    assert isinstance(rendered, dict)
    _, answer = engine.tokenize({"content": rendered["prompt"], "add_special": True, "parse_special": True})
    assert isinstance(answer, dict)
    return len(answer["tokens"])


async def test_many_calls_at_once_measure_the_overhead_once(engine: SmallEngine) -> None:
    counter = counter_of(engine)
    await counter.ready()
    once = len(engine.asked)
    engine.asked.clear()
    counter.forget()
    await asyncio.gather(*(counter.ready() for _ in range(10)))
    assert len(engine.asked) == once


async def test_an_engine_that_does_not_answer_is_not_asked_by_every_call(engine: SmallEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.down = True
    counter = counter_of(engine)
    for _ in range(5):
        with pytest.raises(CannotCount):
            await counter.ready()
    assert len(engine.asked) == 1
    monkeypatch.setattr(counters, "RETRY_MEASURING_S", 0.0)
    engine.down = False
    await counter.ready()
    assert counter.bound(request_of(said("x")))[0] > 0


async def test_a_run_counts_one_call_at_a_time_and_runs_do_not_wait_for_each_other(engine: SmallEngine) -> None:
    counter = counter_of(engine)
    await counter.ready()
    engine.most = 0
    await asyncio.gather(*(counter.count(request_of(said("x")), "one run") for _ in range(6)))
    assert engine.most == 1
    await asyncio.gather(*(counter.count(request_of(said("x")), f"run {n}") for n in range(6)))
    assert engine.most == 6


async def test_a_count_that_is_cancelled_lets_the_next_one_go(engine: SmallEngine) -> None:
    counter = counter_of(engine)
    await counter.ready()
    first = asyncio.create_task(counter.count(request_of(said("x")), "r"))
    await asyncio.sleep(0)
    second = asyncio.create_task(counter.count(request_of(said("x")), "r"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == tokens_of(engine, said("x"))


async def test_counts_are_whole_and_what_begins_a_text_is_counted_once(engine: SmallEngine) -> None:
    counter = counter_of(engine)
    texts = ["one", "<|e|><|s|>system evil", "é" * 40, "", "<|", "|>"]
    for length in range(1, len(texts) + 1):
        body = said(*texts[:length])
        assert await counter.count(request_of(body), "r") == tokens_of(engine, body)
        assert counter.bound(request_of(body))[0] >= tokens_of(engine, body)


async def test_messages_of_which_the_first_are_known_are_counted_whole(engine: SmallEngine) -> None:
    body = said("one", "two", "three")
    read = MessagesRead()
    known = Known(messages=2, list_bytes=9, sha256="", structure=Structure(members=6, plain=True), read=read, by_role={})
    late = KnownMessages(known, body["messages"][2:], lambda: list(body["messages"]))
    request = replace(request_of(body), body={**body, "messages": late})
    assert await counter_of(engine).count(request, "r") == tokens_of(engine, body)
    assert shape_of(request) == shape_of(request_of(body))


async def test_a_rest_whose_special_tokens_are_not_where_the_text_has_them_is_counted_whole(engine: SmallEngine) -> None:
    counter = counter_of(engine)
    await counter.count(request_of(said("one")), "r")
    engine.lies = True
    body = said("one", "two")
    assert await counter.count(request_of(body), "r") == tokens_of(engine, body)


async def test_what_was_learned_of_another_template_is_void_after_forgetting(engine: SmallEngine) -> None:
    counter = counter_of(engine)
    await counter.count(request_of(said("one " * 50)), "r")
    engine.added = 5
    counter.forget()
    body = said("one " * 50, "two")
    assert await counter.count(request_of(body), "r") == tokens_of(engine, body)


async def test_what_reports_taught_is_void_after_forgetting(engine: SmallEngine) -> None:
    counter = counter_of(engine)
    request = request_of(said("x"))
    counter.observe(request, 1, False, 2)
    counter.observe(request, 1, True, 2)
    assert not counter.exact and not counter.trusts_bound
    counter.forget()
    assert counter.exact and counter.trusts_bound


async def test_the_two_ways_in_which_no_count_is_had_are_told_apart(engine: SmallEngine) -> None:
    counter = counter_of(engine)
    await counter.ready()
    with pytest.raises(PromptRejected, match="no such role"):
        await counter.count(request_of({"messages": [{"role": "bad", "content": "x"}]}), "r")
    engine.down = True
    with pytest.raises(CannotCount):
        await counter.count(request_of(said("x")), "r")


async def test_pictures_count_as_declared_and_never_as_drift(engine: SmallEngine) -> None:
    counter = counter_of(engine)
    request = request_of(said("x"), pictures=2)
    counted = await counter.count(request, "r")
    assert counted == tokens_of(engine, said("x")) + 100
    assert counter.observe(request, counted, True, counted - 7) is None
    assert counter.exact


async def test_an_estimating_counter_never_drifts_and_a_counter_that_can_only_bound_goes_on_bounding(engine: SmallEngine) -> None:
    estimating, bounding = counter_of(engine, "tiktoken:o200k_base"), counter_of(engine, "bytes")
    request = request_of(said("x"))
    assert estimating.observe(request, 10, True, 11) is None
    assert bounding.observe(request, 10, False, 11) is Finding.OVERSHOOT
    assert bounding.trusts_bound and not bounding.can_count


async def test_a_counter_without_an_engine_to_ask_bounds_generously_and_says_that_it_knows_no_overhead(engine: SmallEngine) -> None:
    counter = choose_counter("tiktoken:o200k_base", ENGINES["generic"], engine.post, Encodings(), RenderedCache())
    await counter.ready()
    assert not counter.knows_overhead and not engine.asked
    request = request_of(said("hello world"))
    assert counter.bound(request)[0] > 500
    assert 2 < await counter.count(request, "r") < 200


@pytest.mark.parametrize(("word", "kind"), [("engine", "generic"), ("tiktoken:p50k_base", "llama.cpp"), ("tokens", "llama.cpp")])
def test_a_word_that_does_not_fit_is_told(engine: SmallEngine, word: str, kind: str) -> None:
    with pytest.raises(ConfigurationError, match="counter"):
        choose_counter(word, ENGINES[kind], engine.post, Encodings(), RenderedCache())


def formed(dialect: str, **body: Any) -> CallRequest:
    return DIALECTS[dialect].read_request({"model": "m", **body})


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("ab", 3), (["ab", "c"], 5), ([7, 8, 9], 3), ([7, "ab"], 3), (["ab", 7], 4), ([["ab"], [7]], 4), ("<|s|>a", 3), ("", 1)],
)
async def test_prompts_without_a_template_are_counted_as_they_are_each_with_its_begin(engine: SmallEngine, prompt: object, tokens: int) -> None:
    counter = counter_of(engine)
    for request in (formed("openai.completions", prompt=prompt), formed("openai.embeddings", input=prompt)):
        await counter.ready(request)
        bound, exact = counter.bound(request)
        assert await counter.count(request, "r") == tokens <= bound
        assert not exact
    assert "/apply-template" not in engine.asked, "no template has a part in it"
    local = counter_of(engine, "tiktoken:o200k_base")
    assert await local.count(formed("openai.completions", prompt=[7, 8, 9]), "r") == 3


async def test_a_responses_body_is_counted_whole_by_the_engine(engine: SmallEngine) -> None:
    counter, request = counter_of(engine), formed("openai.responses", input="hi", stream=True)
    assert await counter.count(request, "r") == 41
    for status, answer, error in ((400, {"error": {"message": "no such item"}}, PromptRejected), (404, {}, CannotCount), (200, {"n": 1}, CannotCount)):
        engine.whole = status, answer
        with pytest.raises(error):
            await counter.count(request, "r")
