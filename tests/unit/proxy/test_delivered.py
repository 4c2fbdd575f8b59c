"""Our own count of what was delivered: by the model's counter where it answers in time, else by a shipped vocabulary, and it says by which."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.proxy import delivered
from gateway.proxy.calls import Call
from gateway.services import Services
from gateway.tokenizers.tokenizer import CannotCount


class Counter:
    name = "engine"

    def __init__(self, answer: int | Exception | None) -> None:
        self.answer = answer

    async def count_text(self, text: str) -> int:
        if self.answer is None:
            await asyncio.sleep(60)
        if isinstance(self.answer, Exception):
            raise self.answer
        assert isinstance(self.answer, int)
        return self.answer


class Fallback:
    name = "tiktoken:o200k_base"

    async def count(self, texts: list[str]) -> int:
        return len(texts[0])


async def counted(answer: int | Exception | None) -> tuple[int, str]:
    call = cast(Call, SimpleNamespace(counter=Counter(answer)))
    services: Any = SimpleNamespace(engines=SimpleNamespace(fallback=Fallback()))
    own = await delivered.count_delivered(call, cast(Services, services), "four")
    return own.output_tokens, own.counted_by


async def test_the_models_own_counter_counts() -> None:
    assert await counted(7) == (7, "engine")


async def test_where_it_cannot_the_shipped_vocabulary_does() -> None:
    assert await counted(CannotCount("gone")) == (4, "tiktoken:o200k_base")


async def test_an_engine_that_hangs_holds_no_settlement_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivered, "COUNT_S", 0.05)
    assert await asyncio.wait_for(counted(None), 5) == (4, "tiktoken:o200k_base")
