"""llama.cpp's own count: its template renders the body, its tokenizer counts what came out; together exactly what it will report as the prompt.

The tokens that a tokenizer adds at begin and end (`add_special`) are measured once and added, so that a text may be counted in two parts. What is known of a
conversation comes from the cache; a part counted alone is believed only if its special tokens are where the text has them, else the whole is counted.
"""

from __future__ import annotations

import asyncio
import re
from array import array
from collections.abc import Mapping, Sequence
from itertools import count as count_up
from itertools import islice
from typing import Final

from gateway.tokenizers.asking import ask, input_tokens
from gateway.tokenizers.rendered_cache import Mark, RenderedCache
from gateway.tokenizers.tokenizer import CannotCount, Post

RENDER_PATH: Final = "/apply-template"
TOKENIZE_PATH: Final = "/tokenize"
RESPONSES_PATH: Final = "/v1/responses/input_tokens"
MESSAGES_PATH: Final = "/v1/messages/count_tokens"
"""These count a body of their format whole, as the engine will when it runs."""
SPECIALS_TRIED: Final = 24
"""Special tokens tried at most: each costs two small requests, once."""
INLINE_BYTES: Final = 32 * 1024
"""A longer text is gone through off the event loop."""
_NOT_RENDERED: Final = frozenset({"stream", "stream_options"})
_REALMS: Final = count_up(1)
_LOOKS_SPECIAL: Final = re.compile(r"<[|｜][^<>\s]{1,60}[|｜]>|</?[A-Za-z_][\w.-]{0,40}>|\[/?[A-Z][A-Z_]{1,30}\]")


class LlamaCppTokenizer:
    """Template and tokenizer of one model on one engine. `learn()` before `count()`."""

    name: Final = "engine"

    def __init__(self, post: Post, cache: RenderedCache, *, model: str = "", strip_fields: frozenset[str] = frozenset()) -> None:
        """`model`: the engine's own name, for a server that holds several."""
        self._post = post
        self._model = {"model": model} if model else {}
        self._cache = cache
        self._dropped = strip_fields | _NOT_RENDERED
        self._specials: dict[bytes, int] = {}
        self._added = 0
        self._plain_added: int | None = None
        self._pattern: re.Pattern[bytes] | None = None
        self._realm = ""

    @property
    def specials(self) -> Sequence[bytes]:
        return tuple(self._specials)

    async def learn(self, template: str) -> None:
        """Which of the words in a rendered conversation (or a template's text) are special tokens, and what is added at begin and end."""
        self._added = len(await self.tokenize("x", add_special=True)) - len(await self.tokenize("x"))
        found: dict[bytes, int] = {}
        for word in islice(dict.fromkeys(_LOOKS_SPECIAL.findall(template)), SPECIALS_TRIED):
            ids = await self.tokenize(word)
            if len(ids) == 1 and await self.tokenize(word, parse_special=False) != ids:
                found[word.encode()] = ids[0]
        self._specials = found
        self._realm = f"{next(_REALMS)} "
        self._pattern = re.compile(b"|".join(re.escape(word) for word in sorted(found, key=len, reverse=True))) if found else None

    async def render(self, body: Mapping[str, object]) -> bytes:
        value = await ask(self._post, RENDER_PATH, self._sent(body))
        prompt = value.get("prompt")
        if not isinstance(prompt, str):
            raise CannotCount(f"{RENDER_PATH} gave no prompt")
        return prompt.encode("utf-8", "surrogatepass")

    async def tokenize(self, text: str | Sequence[str], *, add_special: bool = False, parse_special: bool = True) -> Sequence[int]:
        asked = {"content": text, "add_special": add_special, "parse_special": parse_special, **self._model}
        value = await ask(self._post, TOKENIZE_PATH, asked, refuses=False)
        tokens = value.get("tokens")
        if not isinstance(tokens, list | array):
            raise CannotCount(f"{TOKENIZE_PATH} gave no tokens")
        return tokens

    async def count(self, body: Mapping[str, object], run_key: str) -> int:
        """Raises CannotCount, PromptRejected. The caller sees to it that a run counts one call at a time."""
        run_key = self._realm + run_key  # the cache is shared, and what an earlier template or model taught is void
        text = await self.render(body)
        cut = self._cache.find(run_key, text)
        if cut is not None:
            rest = text[cut.offset :]
            ids = await self.tokenize(rest.decode("utf-8", "surrogatepass"))
            marks = await self._marks(rest, ids, cut.offset, cut.tokens_before)
            if marks:
                self._cache.put(run_key, text, [*self._cache.marks_before(run_key, text, cut), *marks])
                return self._added + cut.tokens_before + len(ids)
        ids = await self.tokenize(text.decode("utf-8", "surrogatepass"))
        self._cache.put(run_key, text, await self._marks(text, ids, 0, 0))
        return self._added + len(ids)

    async def count_plain(self, texts: Sequence[str], ids: int, begins: int, *, literal: bool = False) -> int:
        if begins and self._plain_added is None:
            self._plain_added = len(await self.tokenize("x", add_special=True)) - len(await self.tokenize("x"))
        tokens = await self.tokenize(list(texts), parse_special=not literal) if texts else ()
        return len(tokens) + ids + begins * (self._plain_added or 0)

    async def count_messages(self, body: Mapping[str, object]) -> int:
        return input_tokens(MESSAGES_PATH, await ask(self._post, MESSAGES_PATH, self._sent(body)))

    async def count_responses(self, body: Mapping[str, object]) -> int:
        return input_tokens(RESPONSES_PATH, await ask(self._post, RESPONSES_PATH, self._sent(body)))

    async def count_text(self, text: str) -> int:
        return len(await self.tokenize(text, parse_special=False))

    def _sent(self, body: Mapping[str, object]) -> dict[str, object]:
        return {name: part for name, part in body.items() if name not in self._dropped} | self._model

    async def _marks(self, text: bytes, ids: Sequence[int], offset: int, before: int) -> list[Mark]:
        if self._pattern is None:
            return []
        if len(text) <= INLINE_BYTES:
            return find_marks(self._pattern, self._specials, text, ids, offset, before)
        return await asyncio.to_thread(find_marks, self._pattern, self._specials, text, ids, offset, before)


def find_marks(pattern: re.Pattern[bytes], specials: Mapping[bytes, int], text: bytes, ids: Sequence[int], offset: int, before: int) -> list[Mark]:
    """Each special token of the text with its place among the ids; empty where the two don't agree one by one."""
    words = list(pattern.finditer(text))
    known = frozenset(specials.values())
    places = [place for place, token in enumerate(ids) if token in known]
    if len(words) != len(places) or any(specials[word.group()] != ids[place] for word, place in zip(words, places, strict=True)):
        return []
    return [Mark(offset + word.start(), offset + word.end(), before + place) for word, place in zip(words, places, strict=True)]
