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

from gateway.errors import EngineFailure
from gateway.tokenizers.rendered_cache import Mark, RenderedCache
from gateway.tokenizers.tokenizer import CannotCount, Post, PromptRejected

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
_REFUSED: Final = frozenset({400, 413, 422, 500})
"""What the engine says where its template can't take a body; other codes speak of the engine."""
_REALMS: Final = count_up(1)
_LOOKS_SPECIAL: Final = re.compile(r"<[|｜][^<>\s]{1,60}[|｜]>|</?[A-Za-z_][\w.-]{0,40}>|\[/?[A-Z][A-Z_]{1,30}\]")


class LlamaCppTokenizer:
    """Template and tokenizer of one model on one engine. `learn()` before `count()`."""

    name: Final = "engine"

    def __init__(self, post: Post, cache: RenderedCache, *, strip_fields: frozenset[str] = frozenset()) -> None:
        self._post = post
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
        value = await self._ask(RENDER_PATH, {name: part for name, part in body.items() if name not in self._dropped})
        prompt = value.get("prompt")
        if not isinstance(prompt, str):
            raise CannotCount(f"{RENDER_PATH} gave no prompt")
        return prompt.encode("utf-8", "surrogatepass")

    async def tokenize(self, text: str | Sequence[str], *, add_special: bool = False, parse_special: bool = True) -> Sequence[int]:
        value = await self._ask(TOKENIZE_PATH, {"content": text, "add_special": add_special, "parse_special": parse_special})
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

    async def count_plain(self, texts: Sequence[str], ids: int, begins: int) -> int:
        """Prompts that no template renders; `begins` of them begin with a text."""
        if begins and self._plain_added is None:
            self._plain_added = len(await self.tokenize("x", add_special=True)) - len(await self.tokenize("x"))
        tokens = await self.tokenize(list(texts)) if texts else ()
        return len(tokens) + ids + begins * (self._plain_added or 0)

    async def count_body(self, path: str, body: Mapping[str, object]) -> int:
        """By the engine's endpoint that counts a whole body."""
        value = await self._ask(path, {name: part for name, part in body.items() if name not in self._dropped})
        tokens = value.get("input_tokens")
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
            raise CannotCount(f"{path} gave no count")
        return tokens

    async def _marks(self, text: bytes, ids: Sequence[int], offset: int, before: int) -> list[Mark]:
        if self._pattern is None:
            return []
        if len(text) <= INLINE_BYTES:
            return find_marks(self._pattern, self._specials, text, ids, offset, before)
        return await asyncio.to_thread(find_marks, self._pattern, self._specials, text, ids, offset, before)

    async def _ask(self, path: str, value: object) -> Mapping[str, object]:
        try:
            status, answer = await self._post(path, value)
        except EngineFailure as failure:
            raise CannotCount(f"{path}: {failure}") from failure
        if status in _REFUSED and path != TOKENIZE_PATH:
            raise PromptRejected(status, _message(answer))
        if status != 200 or not isinstance(answer, Mapping):
            raise CannotCount(f"{path} answered {status}")
        return answer


def find_marks(pattern: re.Pattern[bytes], specials: Mapping[bytes, int], text: bytes, ids: Sequence[int], offset: int, before: int) -> list[Mark]:
    """Each special token of the text with its place among the ids; empty where the two don't agree one by one."""
    words = list(pattern.finditer(text))
    known = frozenset(specials.values())
    places = [place for place, token in enumerate(ids) if token in known]
    if len(words) != len(places) or any(specials[word.group()] != ids[place] for word, place in zip(words, places, strict=True)):
        return []
    return [Mark(offset + word.start(), offset + word.end(), before + place) for word, place in zip(words, places, strict=True)]


def _message(answer: object) -> str:
    error = answer.get("error") if isinstance(answer, Mapping) else None
    message = error.get("message") if isinstance(error, Mapping) else error
    return message if isinstance(message, str) else "the engine can't render this conversation"
