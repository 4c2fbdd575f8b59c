"""The facts that engines/llamacpp.py states, and forwarding, on a real llama.cpp."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson
import pytest

from gateway.demo.engine import EngineSpec, RealEngine
from gateway.demo.packages import smollm2_path
from gateway.demo.tiny_model import tiny_model
from gateway.dialects.openai_chat import OpenAIChat
from gateway.engines import ENGINES
from gateway.errors import EngineFailure
from gateway.metering.meter import Meter, meter_of
from gateway.metering.reader import EventReader
from gateway.upstream.forward import Upstream
from gateway.upstream.health import HealthProbe, State
from gateway.upstream.identity import identify, missing_models
from tests.unit.proxy.relaying import Agent, relay_of

LLAMA = ENGINES["llama.cpp"]
PATH = LLAMA.paths["openai.chat"]
MESSAGES = [{"role": "user", "content": "go on"}]


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    with RealEngine(EngineSpec(model=tiny_model(tmp_path_factory.mktemp("model")), alias="tiny", context_tokens=32_768, slots=1)) as running:
        yield running


@pytest.fixture
async def upstream(engine: RealEngine) -> AsyncIterator[Upstream]:
    upstream = Upstream(name="real", address=engine.address, engine=LLAMA, helper_s=60)
    yield upstream
    await upstream.close()


async def output_of(upstream: Upstream, **caps: int) -> int:
    status, answer = await upstream.post_json(PATH, {"messages": MESSAGES, **caps})
    assert status == 200
    assert isinstance(answer, dict)
    return int(answer["usage"]["completion_tokens"])


async def test_its_caps_are_as_stated(upstream: Upstream) -> None:
    name = LLAMA.cap_names["openai.chat"]
    assert await output_of(upstream, **{name: 7}) == 7
    assert await output_of(upstream, **{name: 0}) == LLAMA.minimum_output
    assert await output_of(upstream, **{name: 7, "n_predict": 30}) == 30, "n_predict goes before the cap: it must be stripped"
    assert await output_of(upstream, **{name: 7, "max_completion_tokens": 9}) == 9, "another alias goes before it too"
    assert {"n_predict", "max_completion_tokens"} <= LLAMA.strip_fields


async def test_a_stream_reports_unasked_and_comes_in_many_chunks(upstream: Upstream) -> None:
    async with upstream.send(PATH, orjson.dumps({"messages": MESSAGES, "stream": True, "max_tokens": 2_000}), call_id="call-1") as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        chunks = [data async for data in answer.chunks()]
    assert answer.complete and len(chunks) > 1
    last = orjson.loads(b"".join(chunks).split(b"\n\n")[-3].removeprefix(b"data: "))
    assert last["timings"]["predicted_n"] == 2_000
    assert b'"usage"' not in b"".join(chunks)


@pytest.mark.parametrize("leave", [True, False])
async def test_leaving_a_stream_frees_its_slot(leave: bool) -> None:
    """On a model that would write for most of a minute; a stream that is not left still has its slot by then."""
    body = orjson.dumps({"messages": MESSAGES, "stream": True, "max_tokens": 7_900, "ignore_eos": True})
    with RealEngine(EngineSpec(model=smollm2_path(), alias="m", context_tokens=8_192, slots=1)) as engine:
        upstream = Upstream(name="real", address=engine.address, engine=LLAMA)
        async with upstream.send(PATH, body) as answer:
            async for _ in answer.chunks():
                break
            if leave:
                answer.leave()
            await asyncio.sleep(3)  # looked at once: asking its slots again and again keeps it from noticing
            status, slots = await upstream.get_json("/slots")
        await upstream.close()
    assert isinstance(slots, list)
    assert (status, [slot["is_processing"] for slot in slots]) == (200, [not leave])


async def test_an_engine_that_is_killed_in_a_stream_died_and_then_is_unreachable(engine: RealEngine, upstream: Upstream) -> None:
    body = orjson.dumps({"messages": MESSAGES, "stream": True, "max_tokens": 30_000})
    with pytest.raises(EngineFailure) as caught:
        async with upstream.send(PATH, body) as answer:
            async for _ in answer.chunks():
                engine.kill()
    assert caught.value.kind == "died"
    with pytest.raises(EngineFailure) as caught:
        async with upstream.send(PATH, body):
            pass
    assert caught.value.kind == "unreachable"
    probe = HealthProbe(upstream, lambda: 1)
    assert (await probe.probe()).state is State.UNHEALTHY


async def test_it_says_who_it_is(upstream: Upstream) -> None:
    identity = await identify(upstream)
    known: dict[str, Any] = dict(identity.fingerprint)
    assert (known["model"], known["context_tokens"], known["slots"]) == ("tiny", 32_768, 1)
    assert known.keys() >= {"build", "template_sha256", "model_sha256"}
    assert missing_models(["tiny", "qwen"], identity) == ("qwen",)
    assert (await HealthProbe(upstream, lambda: 1).probe()).state is State.HEALTHY
    wrong = await HealthProbe(upstream, lambda: 1, path="/healthz").probe()
    assert (wrong.state, wrong.wrong_path) == (State.HEALTHY, True)


def _meter(reader: EventReader) -> Meter:
    return meter_of(reader, status=200, content_type="text/event-stream", max_event_bytes=1 << 20, max_response_bytes=1 << 20)


async def test_most_events_of_its_streams_are_known_by_their_bytes(upstream: Upstream) -> None:
    """Passed on unread, and read in the end as if each had been looked at: its own count says how many tokens there were."""
    body = {"model": "tiny", "messages": MESSAGES, "stream": True, "max_tokens": 400}
    request = OpenAIChat().read_request(body)
    async with upstream.send(PATH, orjson.dumps(body), call_id="call-1") as answer:
        meter = _meter(OpenAIChat().reader(request, "llama.cpp"))
        agent = Agent(())
        await relay_of(meter, agent, ceiling=400).carry(answer)
    assert agent.as_it_is > 20, "others came several at a time"
    assert meter.reading(200, truncated=False).usage.output_tokens == 400
    plain = meter_of(
        OpenAIChat().reader(request, "llama.cpp"), status=200, content_type="text/event-stream", max_event_bytes=1 << 20, max_response_bytes=1 << 20
    )
    plain.feed(bytes(agent.got))
    assert meter.delivered_text() == plain.delivered_text() != ""
