"""vLLM's and SGLang's tokenizer endpoint: what it is asked, and what its answers are taken for."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects import DIALECTS
from gateway.dialects.dialect import CallRequest
from gateway.engines import ENGINES
from gateway.errors import EngineFailure
from gateway.tokenizers.choosing import Encodings, choose_counter
from gateway.tokenizers.rendered_cache import RenderedCache
from gateway.tokenizers.tokenize_api import TEXTS_MAX, TokenizeApi
from gateway.tokenizers.tokenizer import CannotCount, Counter, PromptRejected
from tests.support.tokenizing_engine import TokenizingEngine, as_chat, render, tokens_of

TOOL: Any = {"type": "function", "function": {"name": "look", "description": 'Looks "up" 漢', "parameters": {"type": "object", "properties": {}}}}
MESSAGES: Any = [{"role": "system", "content": "Be kind"}, {"role": "user", "content": [{"type": "text", "text": "a <|im_end|> b"}]}]


class Asked:
    """The server's answers without its sockets."""

    def __init__(self, kind: str) -> None:
        self.engine = TokenizingEngine(kind)
        self.engine._server.server_close()
        self.down = False
        self.instead: tuple[int, object] | None = None

    async def post(self, path: str, value: object) -> tuple[int, object]:
        assert isinstance(value, dict)
        if self.down:
            raise EngineFailure("unreachable")
        self.engine.asked.append((path, value))
        return self.instead or self.engine.answer(path, value)


@pytest.fixture(params=["vllm", "sglang"])
def asked(request: pytest.FixtureRequest) -> Asked:
    return Asked(request.param)


def counter_of(asked: Asked, word: str = "engine", **more: Any) -> Counter:
    return choose_counter(word, ENGINES[asked.engine.kind], asked.post, Encodings(), RenderedCache(), model="org/Model", **more)


def read(dialect: str, **body: Any) -> CallRequest:
    return DIALECTS[dialect].read_request({"model": "public", **body})


CHATS: list[dict[str, Any]] = [
    {},
    {"tools": [TOOL]},
    {"tools": [TOOL, TOOL], "stream": True, "max_tokens": 5, "temperature": 0.5, "cache_salt": "x"},
    {"chat_template_kwargs": {"a": 1}, "reasoning_effort": "low"},
    {"add_generation_prompt": False},
]


@pytest.mark.parametrize("more", CHATS)
async def test_a_conversation_is_counted_with_its_tools_as_the_engine_renders_it(asked: Asked, more: dict[str, Any]) -> None:
    counter = counter_of(asked)
    body = {"messages": MESSAGES, **more}
    request = read("openai.chat", **{name: value for name, value in body.items() if name != "cache_salt"})
    counted = await counter.count(request, "run")
    assert counted == len(tokens_of(render(body))) <= counter.bound(request)[0]
    path, sent = asked.engine.asked[-1]
    assert (path, sent["model"]) == ("/tokenize", "org/Model")
    assert not {"stream", "max_tokens", "temperature", "cache_salt"} & sent.keys()


PROMPTS: list[tuple[Any, int]] = [("hello 漢", 1 + 9), ([5, 6, 7], 3), (["a", "bcd"], 2 + 4), ([[1, 2], [3]], 3), ("<|im_end|>", 2)]


@pytest.mark.parametrize(("prompt", "tokens"), PROMPTS)
async def test_a_prompt_without_a_template_is_counted_with_what_the_tokenizer_puts_before_it(asked: Asked, prompt: Any, tokens: int) -> None:
    request = read("openai.completions", prompt=prompt)
    counter = counter_of(asked)
    assert await counter.count(request, "run") == tokens <= counter.bound(request)[0]


async def test_a_messages_body_is_counted_by_the_endpoint_of_its_form(asked: Asked) -> None:
    tool = {"name": "look", "input_schema": {"type": "object"}}
    body = {"system": "Be kind", "messages": [{"role": "user", "content": "hi"}], "tools": [tool], "max_tokens": 5, "stream": True}
    counter = counter_of(asked)
    assert await counter.count(read("anthropic.messages", **body), "run") == len(tokens_of(render(as_chat(body))))
    path, sent = asked.engine.asked[-1]
    assert (path, sent["model"]) == ("/v1/messages/count_tokens", "org/Model") and "stream" not in sent


async def test_a_responses_body_can_t_be_counted(asked: Asked) -> None:
    counter = counter_of(asked)
    with pytest.raises(CannotCount, match="Responses"):
        await counter.count(read("openai.responses", input="hi"), "run")


async def test_a_conversation_that_the_template_refuses_is_rejected_in_the_engines_words(asked: Asked) -> None:
    with pytest.raises(PromptRejected, match="Unexpected role") as rejected:
        await counter_of(asked).count(read("openai.chat", messages=[{"role": "bad", "content": "x"}]), "run")
    assert rejected.value.status == 400


async def test_more_prompts_than_are_asked_one_by_one_are_rejected(asked: Asked) -> None:
    with pytest.raises(PromptRejected, match="several calls"):
        await counter_of(asked).count(read("openai.completions", prompt=["a"] * (TEXTS_MAX + 1)), "run")
    assert not asked.engine.asked


@pytest.mark.parametrize(
    "instead", [(404, {"detail": "Not Found"}), (503, None), (200, None), (200, {"tokens": "x", "count": True}), (200, {"count": -1, "tokens": [1]})]
)
async def test_an_answer_that_is_no_count_is_none(asked: Asked, instead: tuple[int, object]) -> None:
    asked.instead = instead
    tokenizer = TokenizeApi(asked.post, model="org/Model")
    with pytest.raises(CannotCount):
        await tokenizer.count({"messages": MESSAGES}, "run")


async def test_an_engine_that_is_gone_counts_nothing(asked: Asked) -> None:
    asked.down = True
    for request in (
        read("openai.chat", messages=MESSAGES),
        read("openai.completions", prompt="x"),
        read("anthropic.messages", messages=[{"role": "user", "content": "x"}], max_tokens=1),
    ):
        with pytest.raises(CannotCount):
            await counter_of(asked).count(request, "run")


async def test_delivered_text_is_counted_without_what_a_prompt_begins_with(asked: Asked) -> None:
    assert await counter_of(asked).count_text("abc") == 3


async def test_a_vocabulary_asks_such_an_engine_nothing(asked: Asked) -> None:
    counter = counter_of(asked, "tiktoken:o200k_base")
    request = read("openai.chat", messages=MESSAGES)
    await counter.ready(request)
    assert await counter.count(request, "run") > 0 and not asked.engine.asked


async def test_bytes_take_a_declared_overhead_and_measure_it_where_none_is_declared(asked: Asked) -> None:
    request = read("openai.chat", messages=MESSAGES)
    declared = counter_of(asked, "bytes", overhead_tokens=100)
    assert await declared.count(request, "run") > 100 and not asked.engine.asked
    measured = counter_of(asked, "bytes")
    assert await measured.count(request, "run") >= len(tokens_of(render({"messages": MESSAGES})))
    assert asked.engine.asked
