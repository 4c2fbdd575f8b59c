"""The facts about engines: what must hold of each of them."""

from __future__ import annotations

import pytest

from gateway.engines import ENGINES
from gateway.engines.engine import Engine

engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())


@engines
def test_a_cap_that_is_written_is_not_stripped(engine: Engine) -> None:
    assert not engine.strip_fields & set(engine.cap_names.values())
    assert not engine.strip_fields & set(engine.pin_fields)


@engines
def test_every_path_has_a_cap_and_is_a_path(engine: Engine) -> None:
    assert engine.cap_names.keys() == engine.paths.keys()
    assert all(path.startswith("/") and "?" not in path for path in (*engine.paths.values(), engine.health_path, engine.models_path))


@engines
def test_what_overrides_the_cap_or_names_another_callers_slot_is_stripped(engine: Engine) -> None:
    assert {"n_predict", "max_completion_tokens", "id_slot", "response_fields", "sse_ping_interval", "cache_salt"} <= engine.strip_fields


@engines
def test_a_pooled_connection_is_dropped_before_servers_drop_it(engine: Engine) -> None:
    assert 0 < engine.pool_idle_s <= 2


def test_llama_cpp_reports_unasked_and_has_a_tokenizer_and_the_generic_engine_does_not() -> None:
    assert (ENGINES["llama.cpp"].asks_usage, ENGINES["llama.cpp"].counter, ENGINES["llama.cpp"].minimum_output) == (False, "llama.cpp", 1)
    assert (ENGINES["generic"].asks_usage, ENGINES["generic"].counter) == (True, "")
    assert not ENGINES["llama.cpp"].cancels_whole and not ENGINES["generic"].cancels_whole
