"""vLLM's and SGLang's own count: `/tokenize` takes a text, or messages with tools, which it renders and counts as the engine will.

The whole is counted anew each time: these servers render and tokenise in one request. What a template adds is measured on rendered text, which `/detokenize`
gives back; no word in it is taken for one token, so that a bound from it is never too small. A Responses body can be counted by neither of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.dialects.anthropic_messages import count_body
from gateway.tokenizers.asking import ask, input_tokens, whole_number
from gateway.tokenizers.tokenizer import CannotCount, Post, PromptRejected

TOKENIZE_PATH: Final = "/tokenize"
DETOKENIZE_PATH: Final = "/detokenize"
MESSAGES_PATH: Final = "/v1/messages/count_tokens"
TEXTS_MAX: Final = 256
"""Prompts of one call that are counted, each by a request."""
_RENDERED: Final = ("messages", "tools", "add_generation_prompt", "continue_final_message", "add_special_tokens", "chat_template", "mm_processor_kwargs")
"""Fields of a chat body that `/tokenize` knows by the same name."""
_OF_THE_TEMPLATE: Final = ("documents", "reasoning_effort")
"""Fields that a chat call hands to its template and `/tokenize` does not know: they go as what they become."""


class TokenizeApi:
    """Template and tokenizer of one model on one engine."""

    name: Final = "engine"
    specials: Final[Sequence[bytes]] = ()

    def __init__(self, post: Post, *, model: str, strip_fields: frozenset[str] = frozenset()) -> None:
        """`model`: the engine's own name."""
        self._post = post
        self._model = model
        self._strip_fields = strip_fields
        self._added: int | None = None

    async def learn(self, template: str) -> None:
        """What it adds at begin and end of a prompt."""
        self._added = len(await self._tokens("x", special=True)) - len(await self._tokens("x", special=False))

    async def render(self, body: Mapping[str, object]) -> bytes:
        tokens = _ids(await ask(self._post, TOKENIZE_PATH, self._chat(body)))
        answer = await ask(self._post, DETOKENIZE_PATH, {"model": self._model, "tokens": list(tokens), "skip_special_tokens": False}, refuses=False)
        text = answer.get("prompt", answer.get("text"))
        if not isinstance(text, str):
            raise CannotCount(f"{DETOKENIZE_PATH} gave no text")
        return text.encode("utf-8", "surrogatepass")

    async def count(self, body: Mapping[str, object], run_key: str) -> int:
        return whole_number(TOKENIZE_PATH, (await ask(self._post, TOKENIZE_PATH, self._chat(body))).get("count"))

    async def count_plain(self, texts: Sequence[str], ids: int, begins: int, *, literal: bool = False) -> int:
        if len(texts) > TEXTS_MAX:
            raise PromptRejected(400, f"more than {TEXTS_MAX} prompts in one call can't be counted on this engine: send them in several calls")
        if begins and self._added is None:
            await self.learn("")
        return sum([len(await self._tokens(text, special=False)) for text in texts]) + ids + begins * (self._added or 0)

    async def count_messages(self, body: Mapping[str, object]) -> int:
        return input_tokens(MESSAGES_PATH, await ask(self._post, MESSAGES_PATH, count_body(body, self._model, self._strip_fields)))

    async def count_responses(self, body: Mapping[str, object]) -> int:
        raise CannotCount("this engine can't count a Responses body")

    async def count_text(self, text: str) -> int:
        return len(await self._tokens(text, special=False))

    async def _tokens(self, text: str, *, special: bool) -> Sequence[int]:
        return _ids(await ask(self._post, TOKENIZE_PATH, {"model": self._model, "prompt": text, "add_special_tokens": special}, refuses=False))

    def _chat(self, body: Mapping[str, object]) -> dict[str, object]:
        sent = {name: body[name] for name in _RENDERED if body.get(name) is not None} | {"model": self._model}
        own = body.get("chat_template_kwargs")
        extra = {name: body[name] for name in _OF_THE_TEMPLATE if body.get(name) is not None}
        if extra or own:
            sent["chat_template_kwargs"] = {**(own if isinstance(own, Mapping) else {}), **extra}
        return sent


def _ids(answer: Mapping[str, object]) -> Sequence[int]:
    tokens = answer.get("tokens")
    if not isinstance(tokens, list | array):
        raise CannotCount(f"{TOKENIZE_PATH} gave no tokens")
    return tokens
