"""What it is worth that a run goes back to its engine: prompt tokens that two real llama.cpp found in their caches, as they reported them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.demo.engine import RealEngine, tiny_engine
from gateway.errors import ConfigurationError
from tests.support import record
from tests.support.gateway_process import GatewayProcess
from tests.support.raw_http import chat_once
from tests.support.skips import skip

RUNS, TURNS = 4, 5
POLICY: Any = {"models": {"tiny": {"default_output_tokens": 8}}}


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RealEngine]]:
    made: list[RealEngine] = []
    try:
        made += [tiny_engine(tmp_path_factory.mktemp(name), slots=2).start() for name in ("one", "two")]
    except ConfigurationError as error:
        skip("real-engine", str(error))
    yield made
    for engine in made:
        engine.stop()


def cached_of_growing_conversations(folder: Path, engines: list[RealEngine], name: str, wait_ms: int) -> tuple[int, int, list[list[str]]]:
    """Prompt tokens in all, those of them that came from caches, and where each run's calls went. Every conversation begins with words of its own."""
    upstreams: Any = {
        f"e{number}": {"address": engine.address, "engine": "llama.cpp", "slots": 2, "models": {"tiny": "tiny"}} for number, engine in enumerate(engines)
    }
    settings: Any = {"upstreams": upstreams, "bounds": {"affinity_wait_ms": wait_ms}}
    with GatewayProcess(folder, engines[0].address, settings=settings, models={"mock": "tiny"}, policy=POLICY) as gateway:
        runs = [gateway.opened("c1", f"r{number}") for number in range(RUNS)]
        talks: list[list[dict[str, str]]] = [[{"role": "user", "content": f"{name} {number} " + f"run {number} says {name}. " * 30}] for number in range(RUNS)]
        for turn in range(TURNS):
            for number in range(RUNS):  # another first each time, so that chance brings nobody back
                run, talk = runs[(turn + number) % RUNS], talks[(turn + number) % RUNS]
                answer = chat_once(gateway.port, run.key, model="tiny", messages=talk, max_tokens=4)
                assert answer.status == 200, answer.body
                talk += [{"role": "assistant", "content": "so it is"}, {"role": "user", "content": f"and turn {turn}? " * 4}]
        rows = record.calls(gateway)
    assert all(row["source"] == "reported" for row in rows)
    places = [[row["upstream"] for row in rows if row["run"] == run.run] for run in runs]
    return sum(row["input_tokens"] for row in rows), sum(row["cached_tokens"] or 0 for row in rows), places


def test_a_run_that_goes_back_to_its_engine_finds_its_prompt_in_the_cache(engines: list[RealEngine], tmp_path: Path) -> None:
    prompt, cached, places = cached_of_growing_conversations(tmp_path / "with", engines, "alpha", 2_000)
    prompt_without, cached_without, places_without = cached_of_growing_conversations(tmp_path / "without", engines, "omega", 0)
    print(f"cached prompt tokens: {cached} of {prompt} with affinity, {cached_without} of {prompt_without} without")
    assert all(len(set(run)) == 1 for run in places), "each run stayed where it was"
    assert all(len(set(run)) == 2 for run in places_without), "without, none did"
    assert prompt == prompt_without
    assert cached > prompt * 0.6, "all but the first prompt of each run and what was new in each turn"
    assert prompt_without - cached_without > 1.5 * (prompt - cached), "what the engines had to read anew"
