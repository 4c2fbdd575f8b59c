"""What it costs to know how long a prompt is: bodies of 60 and 600 kB, the first call of a conversation and the second, which brings 2 kB more.

python bench/counting.py [--rounds 5] [--no-engine]

Milliseconds from the question to the answer and of this process's CPU, the median over conversations that have nothing in common, and how much text was
tokenised for it. `bound` is what a
call costs that needs no count. The real engine is llama.cpp with the small model, on this machine: its share of the time is the model's tokenizer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gateway.demo.engine import smollm2_engine
from gateway.dialects.dialect import CallRequest
from gateway.dialects.openai_chat import OpenAIChat
from gateway.engines import ENGINES
from gateway.tokenizers.choosing import Encodings, choose_counter
from gateway.tokenizers.rendered_cache import RenderedCache
from gateway.tokenizers.tokenizer import Counter
from gateway.upstream.forward import Upstream

SIZES_KB = (60, 600)
MORE_BYTES = 2_000
WORDS = (
    *("return", "value", "index", "token", "match", "result", "größer", "stream", "limit", "path", "reader", "None", "self", "count"),
    *("→", '"key":', "{}", "    "),
)
OVERHEAD_TOKENS = 40


@dataclass(frozen=True, slots=True)
class Cost:
    ms: float
    cpu_ms: float
    """Of this process: an engine's own is not in it."""
    asked_bytes: float


class Asked:
    """An engine, and how much text it was asked about."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self.tokenised_bytes = 0

    async def post(self, path: str, value: object) -> tuple[int, object]:
        if path == "/tokenize" and isinstance(value, dict):
            self.tokenised_bytes += len(str(value.get("content", "")).encode())
        return await self._upstream.post_json(path, value)


def conversation(kilobytes: int, seed: int) -> list[dict[str, Any]]:
    """An agent's: system, then turns of 2 kB in which one half is a tool's result."""
    chance = random.Random(seed)
    messages: list[dict[str, Any]] = [{"role": "system", "content": _text(1_000, chance)}, {"role": "user", "content": _text(1_000, chance)}]
    while _size(messages) < kilobytes * 1_000:
        messages += _turn(chance)
    return messages


def _turn(chance: random.Random) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": _text(MORE_BYTES // 2, chance)}, {"role": "user", "content": _text(MORE_BYTES // 2, chance)}]


def _text(size: int, chance: random.Random) -> str:
    parts: list[str] = []
    while sum(map(len, parts)) + len(parts) < size:
        parts.append(chance.choice(WORDS) + str(chance.randrange(1_000)))
    return " ".join(parts)


def _size(messages: list[dict[str, Any]]) -> int:
    return len(json.dumps(messages, ensure_ascii=False).encode())


def request_of(messages: list[dict[str, Any]]) -> CallRequest:
    return OpenAIChat().read_request({"model": "m", "messages": messages, "max_tokens": 100})


async def cost_of(work: Awaitable[object], tokenised: Callable[[], int]) -> Cost:
    before, began, cpu = tokenised(), time.perf_counter(), time.process_time()
    await work
    return Cost((time.perf_counter() - began) * 1_000, (time.process_time() - cpu) * 1_000, tokenised() - before)


async def bound_of(counter: Counter, request: CallRequest) -> tuple[int, bool]:
    return counter.bound(request)


async def costs(counter: Counter, kilobytes: int, rounds: int, tokenised: Callable[[], int]) -> dict[str, Cost]:
    """Of the bound alone, of a first call, and of the same conversation's second."""
    await counter.ready()
    await counter.count(request_of(conversation(1, 999_983)), "warm")  # loads the vocabulary, learns the template
    found: dict[str, list[Cost]] = {"bound": [], "first": [], "second": []}
    for number in range(rounds):
        messages = conversation(kilobytes, kilobytes * 1_000 + number)
        whole, longer = request_of(messages), request_of([*messages, *_turn(random.Random(-number - 1))])
        run = f"run {kilobytes} {number}"
        found["bound"].append(await cost_of(bound_of(counter, whole), tokenised))
        found["first"].append(await cost_of(counter.count(whole, run), tokenised))
        found["second"].append(await cost_of(counter.count(longer, run), tokenised))
    return {name: middle(each) for name, each in found.items()}


def middle(each: list[Cost]) -> Cost:
    return Cost(*(statistics.median(getattr(cost, name) for cost in each) for name in ("ms", "cpu_ms", "asked_bytes")))


def told(name: str, kilobytes: int, by: dict[str, Cost]) -> str:
    times = [f"{by[which].ms:,.2f} ({by[which].cpu_ms:,.2f})" for which in ("bound", "first", "second")]
    return f"| {name} | {kilobytes} kB | " + " | ".join([*times, *(f"{by[which].asked_bytes:,.0f}" for which in ("first", "second"))]) + " |"


async def local(word: str, encodings: Encodings, rounds: int) -> None:
    async def nobody(_path: str, _value: object) -> tuple[int, object]:
        raise AssertionError("a vocabulary that lies here asks no engine")

    tokenizer = encodings.get(word.partition(":")[2])
    counter = choose_counter(word, ENGINES["generic"], nobody, encodings, RenderedCache(), None, OVERHEAD_TOKENS)
    for kilobytes in SIZES_KB:
        print(told(word, kilobytes, await costs(counter, kilobytes, rounds, lambda: tokenizer.characters_encoded)), flush=True)


async def engine(encodings: Encodings, rounds: int) -> None:
    with smollm2_engine() as real:
        upstream = Upstream(name="engine", address=real.address, engine=ENGINES["llama.cpp"], helper_s=120)
        asked = Asked(upstream)
        counter = choose_counter("engine", ENGINES["llama.cpp"], asked.post, encodings, RenderedCache(), None)
        for kilobytes in SIZES_KB:
            print(told("engine (llama.cpp)", kilobytes, await costs(counter, kilobytes, rounds, lambda: asked.tokenised_bytes)), flush=True)
        await upstream.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-engine", action="store_true", help="only the vocabularies in the package")
    arguments = parser.parse_args()
    print("| counter | body | bound, ms (CPU) | first call, ms (CPU) | second call, ms (CPU) | tokenised, first | second |\n|---|--:|--:|--:|--:|--:|--:|")
    encodings = Encodings()
    for word in ("tiktoken:o200k_base", "tiktoken:qwen3_6"):
        await local(word, encodings, arguments.rounds)
    if not arguments.no_engine:
        await engine(encodings, arguments.rounds)
    encodings.close()


if __name__ == "__main__":
    asyncio.run(main())
