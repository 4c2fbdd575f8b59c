"""The facts about engines: what must hold of each of them."""

from __future__ import annotations

import pytest

from gateway.dialects import DIALECTS, FAMILIES, UTILITIES
from gateway.dialects.output_caps import CAPS
from gateway.engines import ENGINES
from gateway.engines.engine import Engine

engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
SERVED = [(engine, dialect) for engine in ENGINES.values() for dialect in engine.paths]
INPUT_ONLY = {"openai.embeddings", "rerank", "ollama.embed", "llamacpp.embedding"}
SERVES = {
    "llama.cpp": {"openai.responses", "anthropic.messages", "llamacpp.completion", "llamacpp.embedding", "rerank"},
    "vllm": {"openai.responses", "anthropic.messages", "rerank"},
    "sglang": {"openai.responses", "anthropic.messages", "rerank", "sglang.generate"},
    "ollama": {"openai.responses", "anthropic.messages", "ollama.chat", "ollama.generate", "ollama.embed"},
    "generic": {"openai.responses", "anthropic.messages", "rerank", "tgi.generate", "tgi.generate_stream", "lmstudio.chat"},
}
"""Beside chat, completions and embeddings, which every one of them serves."""


@engines
def test_a_cap_that_is_written_is_not_stripped(engine: Engine) -> None:
    assert not engine.strip_fields & set(engine.cap_names.values())
    assert not engine.strip_fields & set(engine.pin_fields)


@engines
def test_an_engine_serves_these_formats_and_no_others(engine: Engine) -> None:
    assert set(engine.paths) == SERVES[engine.kind] | {"openai.chat", "openai.completions", "openai.embeddings"}
    assert engine.utilities.keys() <= UTILITIES.keys()
    assert set(engine.paths) <= DIALECTS.keys() == set(DIALECTS) & (set(FAMILIES.values()) | {"tgi.generate"})


@engines
def test_every_path_has_a_cap_and_is_a_path(engine: Engine) -> None:
    assert engine.cap_names.keys() == engine.paths.keys()
    every = (*engine.paths.values(), *engine.utilities.values(), engine.health_path, engine.models_path)
    assert all(path.startswith("/") and "?" not in path for path in every)


@pytest.mark.parametrize(("engine", "dialect"), SERVED, ids=lambda value: getattr(value, "kind", value))
def test_the_cap_of_every_format_is_a_name_that_bodies_are_cleared_of_first(engine: Engine, dialect: str) -> None:
    cap = engine.cap_names[dialect]
    assert (cap == "") is (dialect in INPUT_ONLY)
    assert not cap or (cap in CAPS and cap in DIALECTS[dialect].cap_names)


@engines
def test_what_overrides_the_cap_or_names_another_callers_slot_is_stripped(engine: Engine) -> None:
    assert {"n_predict", "max_completion_tokens", "id_slot", "response_fields", "sse_ping_interval", "cache_salt"} <= engine.strip_fields


@engines
def test_a_pooled_connection_is_dropped_before_servers_drop_it(engine: Engine) -> None:
    assert 0 < engine.pool_idle_s <= 2


@engines
def test_an_engine_that_would_not_surely_stop_is_read_to_its_end(engine: Engine) -> None:
    assert not engine.cancels_whole


COUNTERS = {"llama.cpp": "llama.cpp", "vllm": "tokenize", "sglang": "tokenize", "ollama": "", "generic": ""}


@engines
def test_llama_cpp_reports_unasked_and_the_others_do_not(engine: Engine) -> None:
    assert (engine.asks_usage, engine.minimum_output) == (engine.kind != "llama.cpp", 1)


@engines
def test_who_has_a_tokenizer_that_can_be_asked_says_which_prompts_it_counts(engine: Engine) -> None:
    assert engine.counter == COUNTERS[engine.kind]
    assert bool(engine.counts) is bool(engine.counter)
    assert engine.counts <= engine.paths.keys()
    assert (engine.counts == engine.paths.keys()) is (engine.kind == "llama.cpp")


@engines
def test_every_engine_says_how_it_stops_and_what_not_to_believe(engine: Engine) -> None:
    assert engine.stops and engine.distrust


def test_only_who_can_keep_prompt_caches_apart_says_so() -> None:
    assert {kind: engine.salt_field for kind, engine in ENGINES.items() if engine.salt_field} == {"vllm": "cache_salt", "sglang": "extra_key"}
