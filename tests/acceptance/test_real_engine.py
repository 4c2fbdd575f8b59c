"""The small real engines, as an SDK sees them: what later tests rely on when they hold a ledger against an engine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.demo.engine import EngineSpec, RealEngine, tiny_engine
from gateway.errors import EngineFailure
from tests.support.raw_http import RawClient
from tests.support.sdk import async_openai_client, openai_client
from tests.support.waiting import eventually

MESSAGES: Any = [{"role": "system", "content": "Answer in one short sentence."}, {"role": "user", "content": "Say hello."}]


@pytest.fixture(params=["tiny", "smollm2"])
def real(request: pytest.FixtureRequest) -> RealEngine:
    engine: RealEngine = request.getfixturevalue(request.param)
    return engine


def test_the_sdk_chats_with_a_real_engine(real: RealEngine) -> None:
    before = real.counters()
    answer = openai_client(real.address).chat.completions.create(model=real.spec.alias, messages=MESSAGES, max_tokens=24)
    assert answer.usage is not None and answer.usage.completion_tokens <= 24 and answer.choices[0].message.content
    cached = (answer.usage.prompt_tokens_details and answer.usage.prompt_tokens_details.cached_tokens) or 0
    spent = real.counters() - before
    assert (spent.prompt_tokens, spent.output_tokens) == (answer.usage.prompt_tokens - cached, answer.usage.completion_tokens)


def test_the_sdk_streams_from_a_real_engine(real: RealEngine) -> None:
    before = real.counters()
    stream = openai_client(real.address).chat.completions.create(
        model=real.spec.alias, messages=MESSAGES, max_tokens=24, stream=True, stream_options={"include_usage": True}
    )
    text, usage = "", None
    for chunk in stream:
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        usage = chunk.usage or usage
    assert text and usage is not None
    cached = (usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens) or 0
    spent = real.counters() - before
    assert (spent.prompt_tokens, spent.output_tokens) == (usage.prompt_tokens - cached, usage.completion_tokens)


async def test_a_real_engine_serves_callers_side_by_side(tiny: RealEngine) -> None:
    client = async_openai_client(tiny.address)
    before = tiny.counters()

    async def call() -> int:
        answer = await client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=50)
        assert answer.usage is not None
        return answer.usage.completion_tokens

    counts = await asyncio.gather(*(call() for _ in range(12)))
    assert counts == [50] * 12, "the tiny model always runs to its cap"
    assert (tiny.counters() - before).output_tokens == 600


def test_the_tiny_models_template_renders_tools(tiny: RealEngine) -> None:
    tools: Any = [{"type": "function", "function": {"name": "look_here", "parameters": {"type": "object", "properties": {}}}}]
    client = openai_client(tiny.address)
    bare = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=1).usage
    with_tools = client.chat.completions.create(model="tiny", messages=MESSAGES, tools=tools, max_tokens=1).usage
    assert bare is not None and with_tools is not None and with_tools.prompt_tokens > bare.prompt_tokens + len("look_here")


def test_a_streams_slot_is_free_soon_after_its_client_left(smollm2: RealEngine) -> None:
    before = smollm2.counters()
    with RawClient(int(smollm2.address.rpartition(":")[2])) as client:
        client.chat("none", model="smollm2", stream=True, max_tokens=3_000, ignore_eos=True)
        client.read_events(5)
        assert smollm2.busy_slots() == 1
        client.close()
    time.sleep(3)  # asking in between would keep the engine from cancelling
    assert smollm2.busy_slots() == 0
    assert (smollm2.counters() - before).output_tokens < 1_500, "it was cancelled, it did not just end"


def test_an_engine_ends_with_its_block_and_says_how_it_starts(tmp_path: Path) -> None:
    said: list[str] = []
    with tiny_engine(tmp_path, progress=said.append) as engine:
        pid = engine.pid
        assert Path(f"/proc/{pid}").exists() and engine.started_ms < 30_000
    assert engine.pid == 0 and not Path(f"/proc/{pid}").exists()
    assert "starting" in said[0] and engine.address in said[-1]


def test_an_engine_that_is_killed_starts_again_on_its_port(tmp_path: Path) -> None:
    with tiny_engine(tmp_path) as first:
        port = int(first.address.rpartition(":")[2])
        first.kill()
        with RealEngine(EngineSpec(model=first.spec.model, alias="tiny", port=port)) as second:
            assert second.address == first.address
            assert openai_client(second.address).chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=1).choices


async def test_an_engine_starts_and_ends_beside_a_loop(tmp_path: Path) -> None:
    async with tiny_engine(tmp_path) as engine:
        assert (await async_openai_client(engine.address).models.list()).data[0].id == "tiny"


def test_a_file_that_is_no_model_fails_with_the_engines_own_words(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"no model")
    with pytest.raises(EngineFailure, match="failed to load model"):
        RealEngine(EngineSpec(model=path, alias="broken")).start()


def test_an_engine_does_not_outlive_its_starter(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from gateway.demo.engine import tiny_engine\n"
        f"engine = tiny_engine(pathlib.Path({str(tmp_path)!r})).start(); print(engine.pid, flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        starter.kill()
    eventually(lambda: not _runs(pid), "the engine ends with its starter", timeout_s=10)


def _runs(pid: int) -> bool:
    """A zombie runs no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
