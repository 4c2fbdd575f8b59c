"""A policy's word for its counter -> the counter. `engine`, `tiktoken:NAME`, `bytes`."""

from __future__ import annotations

from gateway.engines.engine import Engine
from gateway.errors import ConfigurationError
from gateway.tokenizers.bpe import BpeTokenizer
from gateway.tokenizers.counters import ByteCounter, DeclaredOverhead, EngineCounter, LocalCounter, MeasuredOverhead
from gateway.tokenizers.engine import LlamaCppTokenizer
from gateway.tokenizers.rendered_cache import RenderedCache
from gateway.tokenizers.tokenize_api import TokenizeApi
from gateway.tokenizers.tokenizer import Counter, EngineTokenizer, Post
from gateway.tokenizers.vocabulary import VOCABULARIES

WORDS = ("engine", *(f"tiktoken:{name}" for name in VOCABULARIES), "bytes")


class Encodings:
    """Each vocabulary once in the process."""

    def __init__(self) -> None:
        self._loaded: dict[str, BpeTokenizer] = {}

    def get(self, name: str) -> BpeTokenizer:
        """Raises ConfigurationError where no such vocabulary is shipped."""
        if name not in self._loaded:
            self._loaded[name] = BpeTokenizer(name)
        return self._loaded[name]

    def close(self) -> None:
        for tokenizer in self._loaded.values():
            tokenizer.close()


def check_word(word: str, engine: Engine) -> None:
    """Raises ConfigurationError where this engine can't be counted that way."""
    if word not in WORDS:
        raise ConfigurationError(f"counter {word!r} is none of {', '.join(WORDS)}")
    if word == "engine" and not engine.counter:
        raise ConfigurationError(f"counter 'engine': an engine of kind {engine.kind!r} has no tokenizer to ask; use {WORDS[1]!r} or 'bytes'")


def choose_counter(
    word: str,
    engine: Engine,
    post: Post,
    encodings: Encodings,
    cache: RenderedCache,
    image_tokens_max: int | None = None,
    overhead_tokens: int | None = None,
    model: str = "",
) -> Counter:
    """One for each model on each upstream. `overhead_tokens`: what the template adds, for an engine that can't be asked. `model`: the engine's own name.

    Raises ConfigurationError.
    """
    check_word(word, engine)
    tokenizer = _tokenizer(engine, post, cache, model)
    overhead: MeasuredOverhead | DeclaredOverhead | None = None
    told = overhead_tokens is not None and word == "bytes"
    if tokenizer is not None and (engine.counter == "llama.cpp" or word == "engine" or (word == "bytes" and not told)):
        overhead = MeasuredOverhead(tokenizer)
    elif overhead_tokens is not None:
        overhead = DeclaredOverhead(overhead_tokens)
    if word == "bytes":
        return ByteCounter(overhead, image_tokens_max)
    if word == "engine" and tokenizer is not None:
        return EngineCounter(tokenizer, overhead, image_tokens_max)
    return LocalCounter(encodings.get(word.partition(":")[2]), overhead, image_tokens_max)


def _tokenizer(engine: Engine, post: Post, cache: RenderedCache, model: str) -> EngineTokenizer | None:
    match engine.counter:
        case "llama.cpp":
            return LlamaCppTokenizer(post, cache, model=model, strip_fields=engine.strip_fields)
        case "tokenize":
            return TokenizeApi(post, model=model, strip_fields=engine.strip_fields)
    return None
