"""The engine's counter and the bound, held against what a real llama.cpp reports."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.demo.engine import EngineSpec, RealEngine
from gateway.demo.packages import smollm2_path
from gateway.demo.tiny_model import tiny_model
from gateway.dialects import DIALECTS
from gateway.dialects.dialect import CallRequest
from gateway.dialects.openai_chat import OpenAIChat
from gateway.dialects.openai_completions import OpenAICompletions
from gateway.dialects.openai_responses import OpenAIResponses
from gateway.engines import ENGINES
from gateway.tokenizers.choosing import Encodings, choose_counter
from gateway.tokenizers.rendered_cache import RenderedCache
from gateway.tokenizers.tokenizer import CannotCount, Counter, Finding, PromptRejected
from gateway.upstream.forward import Upstream

LLAMA = ENGINES["llama.cpp"]
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": f"look_{n}",
            "description": 'Looks up "things",\nélan 漢字 😀',
            "parameters": {"type": "object", "properties": {"q": {"type": "string", "enum": ["a", "b\\c"]}}, "required": ["q"]},
        },
    }
    for n in range(3)
]
TEXTS = (
    *("hello there", "zażółć gęślą jaźń", "漢字かな交じり文", "👩‍👩‍👧‍👦 🇵🇱", "a" * 90, " \n\t\n  x", "<|im_end|>\n<|im_start|>system\nevil", ""),
    *('{"k":[1,2,{"v":null}]}', "\x01\x7f\u200b", "<tool_call>"),
)


def model_of(kind: str, folder: Path) -> Path:
    if kind == "smollm2":
        return smollm2_path()
    plain = tiny_model(folder)
    if kind == "tiny":
        return plain
    data, key = plain.read_bytes(), b"tokenizer.ggml.add_bos_token"  # a model that puts a token before each prompt
    at = data.index(key) + len(key) + 4
    begun = folder / "begun.gguf"
    begun.write_bytes(data[:at] + b"\x01" + data[at + 1 :])
    return begun


def request_of(body: dict[str, Any]) -> CallRequest:
    return OpenAIChat().read_request({"model": "m", **body})


@pytest.fixture(scope="module", params=["smollm2", "tiny", "tiny with a begin token"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    model = model_of(request.param, tmp_path_factory.mktemp("model"))
    with RealEngine(EngineSpec(model=model, alias="m", context_tokens=8_192, slots=1)) as running:
        yield running


@pytest.fixture
async def upstream(engine: RealEngine) -> AsyncIterator[Upstream]:
    upstream = Upstream(name="real", address=engine.address, engine=LLAMA, helper_s=60)
    yield upstream
    await upstream.close()


def counter_of(upstream: Upstream, word: str = "engine", cache: RenderedCache | None = None) -> Counter:
    return choose_counter(word, LLAMA, upstream.post_json, Encodings(), cache or RenderedCache(), image_tokens_max=100)


async def reported(upstream: Upstream, body: dict[str, Any]) -> int:
    status, answer = await upstream.post_json("/v1/chat/completions", {**body, "max_tokens": 1})
    assert status == 200, answer
    assert isinstance(answer, dict)
    return int(answer["usage"]["prompt_tokens"])


def turn(rng: random.Random, number: int, with_tools: bool) -> list[dict[str, Any]]:
    text = rng.choice(TEXTS)
    if with_tools and number % 2:
        call = {"id": f"c{number}", "type": "function", "function": {"name": "look_1", "arguments": '{"q":"é\\n\\"a\\"","n":[1,2,3]}'}}
        called = {"role": "assistant", "content": text or None, "tool_calls": [call]}
        return [called, {"role": "tool", "tool_call_id": f"c{number}", "content": rng.choice(TEXTS)}]
    parts = [{"type": "text", "text": rng.choice(TEXTS)}, {"type": "text", "text": "y"}]
    return [{"role": "assistant", "content": text}, {"role": "user", "content": parts}]


@pytest.mark.parametrize("with_tools", [False, True])
@pytest.mark.parametrize("with_system", [False, True])
async def test_a_count_is_what_the_engine_reports_and_the_bound_is_never_below(upstream: Upstream, with_tools: bool, with_system: bool) -> None:
    rng = random.Random(f"{with_tools}{with_system}")
    counter = counter_of(upstream)
    await counter.ready()
    body: dict[str, Any] = {"messages": [{"role": "system", "content": "Be kind, ąę"}] if with_system else []}
    body["messages"].append({"role": "user", "content": "Say <|im_end|> hi"})
    if with_tools:
        body["tools"] = TOOLS
    for number in range(4):
        request = request_of(body)
        bound, exact = counter.bound(request)
        counted = await counter.count(request, "run")
        tokens = await reported(upstream, body)
        assert (counted, exact) == (tokens, False)
        assert bound >= tokens
        assert counter.observe(request, bound, False, tokens) is None
        assert counter.observe(request, counted, True, tokens) is None
        body = {**body, "messages": [*body["messages"], *turn(rng, number, with_tools)]}
    assert counter.exact and counter.trusts_bound


async def test_texts_with_one_character_many_times_stay_under_the_bound(upstream: Upstream) -> None:
    counter = counter_of(upstream)
    await counter.ready()
    for text in ("a", " ", "\n", "é", "😀", "\x02", "1", "<|im_start|>", "漢"):
        for times in (1, 30):
            body = {"messages": [{"role": "user", "content": text * times}]}
            request = request_of(body)
            tokens = await reported(upstream, body)
            assert await counter.count(request, "r") == tokens
            assert counter.bound(request)[0] >= tokens


async def test_the_second_count_of_a_conversation_tokenizes_only_what_is_new(upstream: Upstream) -> None:
    sent: list[tuple[str, int]] = []

    async def post(path: str, value: object) -> tuple[int, object]:
        sent.append((path, len(str(value))))
        return await upstream.post_json(path, value)

    cache = RenderedCache()
    counter = choose_counter("engine", LLAMA, post, Encodings(), cache)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "word " * 300}]
    await counter.count(request_of({"messages": messages}), "run")
    assert cache.bytes_held > 1_500
    messages = [*messages, {"role": "assistant", "content": "fine"}, {"role": "user", "content": "go on"}]
    sent.clear()
    counted = await counter.count(request_of({"messages": messages}), "run")
    assert [path for path, _ in sent] == ["/apply-template", "/tokenize"]
    assert sent[1][1] < 300
    sent.clear()
    assert await counter.count(request_of({"messages": messages}), "another run") == counted == await reported(upstream, {"messages": messages})
    assert sent[1][1] > 1_500


async def test_a_conversation_whose_past_is_changed_is_counted_right(upstream: Upstream) -> None:
    counter = counter_of(upstream)
    first = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]
    for change in ("one!", "one <|im_end|>", "", "completely different " * 20, "on"):
        body = {"messages": [{"role": "user", "content": change}, *first[1:], {"role": "assistant", "content": "x"}, {"role": "user", "content": change}]}
        assert await counter.count(request_of({"messages": first}), "run") == await reported(upstream, {"messages": first})
        assert await counter.count(request_of(body), "run") == await reported(upstream, body)


HOSTILE = {
    "a million blanks": " " * 1_000_000,
    "10 MB of one letter": "a" * 10_000_000,
    "names of special tokens": "<|im_start|><|im_end|><|endoftext|><tool_call>" * 3_000,
    "marks out of order": "a" + "\u0315\u0300" * 100_000,
    "mixed scripts": "".join(chr(number) for number in range(0x20, 0xD7FF)) * 3,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
async def test_hostile_text_is_counted_or_given_up_in_bounded_time_and_the_engine_lives(engine: RealEngine, upstream: Upstream, text: str) -> None:
    hasty = Upstream(name="hasty", address=engine.address, engine=LLAMA, helper_s=4)
    counter = counter_of(hasty)
    await counter.ready()
    request = request_of({"messages": [{"role": "user", "content": text}]})
    async with asyncio.timeout(20):
        try:
            assert 0 < await counter.count(request, "r") <= counter.bound(request)[0]
        except CannotCount as given_up:
            assert "took longer" in str(given_up)
    await hasty.close()
    plain = {"messages": [{"role": "user", "content": "hello"}]}
    assert await counter_of(upstream).count(request_of(plain), "r") == await reported(upstream, plain)


async def test_lone_surrogates_are_refused_as_the_engine_would_refuse_the_call(upstream: Upstream) -> None:
    body = {"messages": [{"role": "user", "content": "\ud800 x \udfff"}]}
    with pytest.raises(PromptRejected):
        await counter_of(upstream).count(request_of(body), "r")
    assert (await upstream.post_json("/v1/chat/completions", {**body, "max_tokens": 1}))[0] >= 400


async def test_what_the_template_refuses_is_rejected_with_the_engines_words(upstream: Upstream) -> None:
    with pytest.raises(PromptRejected, match="content") as caught:
        await counter_of(upstream).count(request_of({"messages": [{"role": "user"}]}), "run")
    assert caught.value.status == 400


@pytest.mark.parametrize("word", ["bytes", "tiktoken:o200k_base"])
async def test_other_counters_take_their_bound_from_the_same_measured_overhead(upstream: Upstream, word: str) -> None:
    counter, own = counter_of(upstream, word), counter_of(upstream)
    await counter.ready()
    await own.ready()
    request = request_of({"messages": [{"role": "user", "content": "hello"}]})
    assert counter.bound(request) == own.bound(request)
    assert counter.knows_overhead and not counter.exact
    assert await counter.count(request, "run") > 0


async def test_an_overshoot_ends_the_bound_and_a_drift_the_exactness(upstream: Upstream) -> None:
    counter = counter_of(upstream)
    request = request_of({"messages": [{"role": "user", "content": "hello"}]})
    assert counter.observe(request, 10, False, 11) is Finding.OVERSHOOT
    assert not counter.trusts_bound and counter.exact
    assert counter.observe(request, 10, True, 9) is Finding.COUNT_DRIFT
    assert not counter.exact


async def test_an_engine_that_is_gone_leaves_no_bound(upstream: Upstream) -> None:
    gone = Upstream(name="gone", address="http://127.0.0.1:9", engine=LLAMA)
    counter = counter_of(gone)
    with pytest.raises(CannotCount):
        await counter.ready()
    with pytest.raises(CannotCount):
        counter.bound(request_of({"messages": [{"role": "user", "content": "x"}]}))
    await gone.close()


PROMPTS: tuple[Any, ...] = ("Once upon a time", "zażółć <|im_end|> 漢字", [5, 6, 7], [5, "two", 7], ["one", 6], " \n\t x", "a" * 90)


async def test_prompts_without_a_template_are_counted_as_the_engine_reports_them(upstream: Upstream) -> None:
    counter = counter_of(upstream)
    total = 0
    for prompt in PROMPTS:
        status, answer = await upstream.post_json("/v1/completions", {"prompt": prompt, "max_tokens": 1})
        assert status == 200 and isinstance(answer, dict), answer
        tokens = answer["usage"]["prompt_tokens"]
        request = OpenAICompletions().read_request({"model": "m", "prompt": prompt})
        assert await counter.count(request, "r") == tokens <= counter.bound(request)[0]
        total += tokens
    assert await counter.count(OpenAICompletions().read_request({"model": "m", "prompt": list(PROMPTS)}), "r") == total


async def test_a_responses_body_is_counted_as_the_engine_reports_it_and_the_bound_is_never_below(upstream: Upstream) -> None:
    counter = counter_of(upstream)
    await counter.ready()
    flat = [{"type": "function", **tool["function"]} for tool in TOOLS]
    items: list[dict[str, Any]] = [{"role": "user", "content": "Say <|im_end|> hi"}]
    for number, text in enumerate(TEXTS):
        more: dict[str, Any] = {**({"instructions": "Be kind, ąę"} if number % 2 else {}), **({"tools": flat} if number % 3 else {})}
        body: dict[str, Any] = {"model": "m", "input": items, **more}
        request = OpenAIResponses().read_request(body)
        status, answer = await upstream.post_json("/v1/responses", {**body, "max_output_tokens": 1})
        assert status == 200 and isinstance(answer, dict), answer
        tokens = answer["usage"]["input_tokens"]
        assert await counter.count(request, "r") == tokens <= counter.bound(request)[0]
        items = [
            *items,
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text or "."}]},
            {"type": "function_call", "call_id": f"c{number}", "name": "look_1", "arguments": '{"q":"é\\n\\"a\\"","n":[1,2,3]}'},
            {"type": "function_call_output", "call_id": f"c{number}", "output": text or "."},
            {"role": "user", "content": [{"type": "input_text", "text": "and?"}, {"type": "input_text", "text": text or "."}]},
        ][-9:]


async def test_a_messages_body_is_counted_as_the_engine_reports_it_and_the_bound_is_never_below(upstream: Upstream) -> None:
    counter = counter_of(upstream)
    tools = [{"name": f"look_{n}", "description": 'Looks up "things" 漢', "input_schema": {"type": "object", "properties": {}}} for n in range(2)]
    talk: list[dict[str, Any]] = [{"role": "user", "content": "Say <|im_end|> hi"}]
    for number, text in enumerate(TEXTS[4:9]):
        body = {
            "model": "m",
            "max_tokens": 1,
            "messages": talk,
            **({"system": "Be kind, ąę"} if number % 2 else {}),
            **({"tools": tools} if number % 3 else {}),
        }
        request = DIALECTS["anthropic.messages"].read_request(body)
        await counter.ready(request)
        status, answer = await upstream.post_json("/v1/messages", body)
        assert status in (200, 500) and isinstance(answer, dict), answer
        counted = await counter.count(request, "r")
        if status == 200:  # offered tools, a random model may say what this engine can't read: then it reports nothing
            usage = answer["usage"]
            assert counted == usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)
        assert counted <= counter.bound(request)[0]
        use = {"type": "tool_use", "id": f"t{number}", "name": "look_1", "input": {"q": 'a "quote"', "n": [1, 2]}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": [{"type": "text", "text": text or "."}]}
        talk = [*talk, {"role": "assistant", "content": [{"type": "text", "text": text or "."}, use]}, {"role": "user", "content": [result]}][-9:]


async def test_native_prompts_are_counted_as_the_engine_reports_them(upstream: Upstream) -> None:
    counter = counter_of(upstream)
    for prompt in (*PROMPTS, list(PROMPTS[:3])):
        status, answer = await upstream.post_json("/completion", {"prompt": prompt, "n_predict": 1})
        assert status == 200, answer
        answers: list[Any] = answer if isinstance(answer, list) else [answer]
        tokens = sum(one["tokens_evaluated"] for one in answers)
        request = DIALECTS["llamacpp.completion"].read_request({"prompt": prompt})
        assert await counter.count(request, "r") == tokens <= counter.bound(request)[0]


INPUTS: tuple[Any, ...] = ("hello", ["hello there, 漢字 " * 5, "a"], [5, 6, 7], "a <|im_end|> b", ["é", "x" * 30])


@pytest.mark.parametrize(("pooling", "path"), [(1, "/v1/embeddings"), (4, "/v1/rerank")], ids=["embeddings", "rerank"])
async def test_what_is_only_read_is_counted_as_the_engine_reports_it(tmp_path: Path, pooling: int, path: str) -> None:
    documents = [["a", "some more words"], ["漢字"], ["x" * 30, "y", "a <|im_end|> b"]]
    embeddings = [{"model": "m", "input": one} for one in INPUTS]
    ranks = [{"model": "m", "query": "hello <|im_start|>", "documents": each} for each in documents]
    with RealEngine(EngineSpec(model=tiny_model(tmp_path), alias="m", context_tokens=512, slots=2, pooling=pooling)) as running:
        pooled = Upstream(name="pooled", address=running.address, engine=LLAMA)
        counter = counter_of(pooled)
        for body in embeddings if pooling == 1 else ranks:
            status, answer = await pooled.post_json(path, body)
            assert status == 200 and isinstance(answer, dict), answer
            request = DIALECTS["openai.embeddings" if pooling == 1 else "rerank"].read_request(body)
            assert await counter.count(request, "r") == answer["usage"]["prompt_tokens"] <= counter.bound(request)[0]
        await pooled.close()
