"""The three counters: the engine's own, a local vocabulary's, bytes alone. All take their bound from the same measured overhead.

Each learns from the reports: one above a bound ends the use of bounds for that model, one that differs from an exact count makes the counter an estimate.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from gateway.dialects.dialect import CallRequest, Rendering
from gateway.dialects.known import whole
from gateway.tokenizers.byte_bound import ASSUMED, SPARE_TOKENS, Overhead, bound_tokens, plain_bound
from gateway.tokenizers.overhead import measure
from gateway.tokenizers.shape import shape_of
from gateway.tokenizers.tokenizer import CannotCount, EngineTokenizer, Finding, PromptRejected, Tokenizer

RETRY_MEASURING_S: Final = 1.0
"""An engine that could not be measured is not asked again before that."""
OVERHEAD_BYTES_PER_TOKEN: Final = 4
"""Of a template's own words, for an estimate."""
_PROBE: Final = {"messages": [{"role": role, "content": "x"} for role in ("system", "user", "assistant", "user")]}
_PLAIN_PROBE: Final = {"messages": [{"role": "user", "content": "x"}]}


class MeasuredOverhead:
    """One model's overhead, measured on first use and again after `forget()`. Many calls at once ask once."""

    def __init__(self, tokenizer: EngineTokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = asyncio.Lock()
        self._failed_at = float("-inf")
        self._failure = ""
        self.value: Overhead | None = None

    async def ready(self) -> Overhead:
        """Raises CannotCount."""
        return self.value or await self._ask_once()

    async def _ask_once(self) -> Overhead:
        async with self._lock:
            value = self.value  # another call may have measured while this one waited
            if value is not None:
                return value
            if asyncio.get_running_loop().time() - self._failed_at < RETRY_MEASURING_S:
                raise CannotCount(self._failure)
            try:
                self.value = value = await self._measure()
            except CannotCount as error:
                self._failed_at, self._failure = asyncio.get_running_loop().time(), str(error)
                raise
            return value

    def forget(self) -> None:
        self.value = None

    async def _measure(self) -> Overhead:
        try:
            rendered = await self._tokenizer.render(_PROBE)
        except PromptRejected:  # some templates take no system message
            try:
                rendered = await self._tokenizer.render(_PLAIN_PROBE)
            except PromptRejected as error:
                raise CannotCount(f"the engine's template renders no conversation: {error}") from error
        await self._tokenizer.learn(rendered.decode("utf-8", "surrogatepass"))
        return await measure(self._tokenizer.render, self._tokenizer.specials)


class DeclaredOverhead:
    """What the policy says of the fixed part, for an engine that can't be asked; the rest as it is assumed of any template."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.value = replace(ASSUMED, fixed=tokens, fixed_with_tools=tokens)

    async def ready(self) -> Overhead:
        return self.value

    def forget(self) -> None:
        """A declaration stays true."""


TemplateOverhead = MeasuredOverhead | DeclaredOverhead


class _Bounded:
    """What the counters share: the bound, and what reports teach."""

    name = ""
    can_count = False
    begins_exact = False

    def __init__(self, overhead: TemplateOverhead | None, image_tokens_max: int | None) -> None:
        self._overhead = overhead
        self._pictures_known = image_tokens_max is not None
        self._image_tokens_max = image_tokens_max or 0
        self._overshot = False
        self._exact = self.begins_exact

    @property
    def exact(self) -> bool:
        return self._exact

    @property
    def trusts_bound(self) -> bool:
        return not self._overshot or not self.can_count

    @property
    def knows_overhead(self) -> bool:
        return self._overhead is not None

    async def ready(self, request: CallRequest | None = None) -> None:
        if self._overhead is not None and not _is_plain(request):
            await self._overhead.ready()

    def bound(self, request: CallRequest) -> tuple[int, bool]:
        if _is_plain(request):
            return plain_bound(shape_of(request), self._image_tokens_max), False
        return bound_tokens(shape_of(request), self._measured(), self._image_tokens_max), False

    def observe(self, request: CallRequest, tokens: int, counted: bool, reported: int) -> Finding | None:
        if request.pictures and not self._pictures_known:
            return None
        if not counted and reported > tokens:
            self._overshot = True
            return Finding.OVERSHOOT
        if counted and self._exact and not request.pictures and reported != tokens:
            self._exact = False
            return Finding.COUNT_DRIFT
        return None

    async def count_text(self, text: str) -> int:
        raise CannotCount("this model has no tokenizer")

    def forget(self) -> None:
        self._overshot, self._exact = False, self.begins_exact
        if self._overhead is not None:
            self._overhead.forget()

    def _measured(self) -> Overhead:
        if self._overhead is None:
            return ASSUMED
        if self._overhead.value is None:
            raise CannotCount("the model's overhead is not measured yet")
        return self._overhead.value


class EngineCounter(_Bounded):
    """Counts as the engine will."""

    name = "engine"
    can_count = True
    begins_exact = True

    def __init__(self, tokenizer: EngineTokenizer, overhead: TemplateOverhead | None, image_tokens_max: int | None) -> None:
        super().__init__(overhead, image_tokens_max)
        self._tokenizer = tokenizer
        self._turns = _Turns()

    async def count(self, request: CallRequest, run_key: str) -> int:
        await self.ready(request)
        async with self._turns.of(run_key):
            return await self._counted(request, run_key) + self._image_tokens_max * request.pictures

    async def _counted(self, request: CallRequest, run_key: str) -> int:
        match request.rendering:
            case Rendering.TEMPLATE:
                return await self._tokenizer.count(whole(request.body), run_key)
            case Rendering.PLAIN:
                literal = request.prompt_literal
                return await self._tokenizer.count_plain(request.prompt_texts, request.prompt_ids, begins_of(request), literal=literal)
            case Rendering.RESPONSES:
                return await self._tokenizer.count_responses(request.body)
            case Rendering.MESSAGES:
                return await self._tokenizer.count_messages(request.body)

    async def count_text(self, text: str) -> int:
        return await self._tokenizer.count_text(text)


class LocalCounter(_Bounded):
    """An estimate: a local vocabulary's count of the texts, and what the template adds at four bytes a token."""

    can_count = True

    def __init__(self, tokenizer: Tokenizer, overhead: TemplateOverhead | None, image_tokens_max: int | None) -> None:
        super().__init__(overhead, image_tokens_max)
        self.name = tokenizer.name
        self._tokenizer = tokenizer
        self._turns = _Turns()

    async def count(self, request: CallRequest, run_key: str) -> int:
        if _is_plain(request):
            return await self._tokenizer.count(request.prompt_texts) + request.prompt_ids + begins_of(request)
        await self.ready()
        shape = shape_of(request)
        pictures = self._image_tokens_max * shape.pictures
        declared = self._overhead.tokens if isinstance(self._overhead, DeclaredOverhead) else 0
        added = bound_tokens(shape, self._measured(), 0) - shape.text_bytes - SPARE_TOKENS - declared
        async with self._turns.of(run_key):
            texts = await self._tokenizer.count(request.rendered_parts)
        estimate = texts + declared + -(-added // OVERHEAD_BYTES_PER_TOKEN) + pictures
        return min(estimate, self.bound(request)[0]) if self.knows_overhead and self.trusts_bound else estimate

    async def count_text(self, text: str) -> int:
        return await self._tokenizer.count([text])


class ByteCounter(_Bounded):
    """Nothing better than the bound."""

    name = "bytes"

    async def count(self, request: CallRequest, run_key: str) -> int:
        await self.ready(request)
        return self.bound(request)[0]


def _is_plain(request: CallRequest | None) -> bool:
    """No template, so no overhead that would have to be known."""
    return request is not None and request.rendering is Rendering.PLAIN


def begins_of(request: CallRequest) -> int:
    """Prompts before which a tokenizer may put a token."""
    if request.prompt_begins is not None:
        return request.prompt_begins
    return 0 if request.prompt_ids else request.prompts


class _Turns:
    """One count at a time for each run; nothing is kept of a run that waits for none."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, key: str) -> AsyncIterator[None]:
        lock, users = self._locks.get(key, (None, 0))
        lock = lock or asyncio.Lock()
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            users = self._locks[key][1] - 1
            if users:
                self._locks[key] = (lock, users)
            else:
                del self._locks[key]
