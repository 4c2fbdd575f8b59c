"""Anthropic Messages and llama.cpp's own `/completion` on a real llama.cpp: what the agent was told, what the ledger holds and what the engine counted agree.

The engine's prompt counter leaves out what it took from its cache, so it is held against input - cached.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from gateway.demo.engine import RealEngine
from gateway.ledger.reading import LedgerReader
from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.waiting import eventually

APIS = ["anthropic.messages", "llamacpp.completion", "openai.models", "ollama.tags", "anthropic.count_tokens"]
OUTPUT_CAP = 100
SYSTEM = "You keep a ledger and answer in one short sentence. " * 4
TOOLS: Any = [
    {
        "name": f"look_{number}",
        "description": 'Looks up "things", e.g. élan or 漢字.',
        "input_schema": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
    }
    for number in range(2)
]


@pytest.fixture(scope="module", params=["tiny", "smollm2"])
def real(request: pytest.FixtureRequest) -> RealEngine:
    engine: RealEngine = request.getfixturevalue(request.param)
    return engine


@pytest.fixture(scope="module")
def gateway(real: RealEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    model: Any = {"models": {"real": {"default_output_tokens": 24}}, "apis": APIS}
    tight: Any = {"admission": {"min_output_tokens": 1, "enough_output_tokens": 1, "queue_seconds": 20}}
    counted: Any = {"models": {"real": {"default_output_tokens": 24, "context_tokens": 3_000 if real.spec.alias == "tiny" else 800}}}
    policies = {
        "free": model,
        "output": {**model, **tight, "run": {"output_tokens": OUTPUT_CAP}},
        "requests": {**model, "run": {"requests": 2}},
        "counted": {**model, **counted},
        "input": {**model, "run": {"input_tokens": 1_000}},
    }
    models = {"real": real.spec.alias, "mock": real.spec.alias}
    with GatewayProcess(tmp_path_factory.mktemp("own"), real.address, policies=policies, models=models, slots=real.spec.slots) as process:
        yield process


@dataclass(frozen=True)
class Told:
    status: int
    headers: httpx.Headers
    input: int = 0
    cached: int = 0
    output: int = 0
    finish: str = ""
    body: Any = None
    raw: bytes = b""


class Agent:
    def __init__(self, gateway: GatewayProcess, run: OpenedRun) -> None:
        self._http = httpx.Client(base_url=gateway.address, headers={"x-api-key": run.key, "anthropic-version": "2023-06-01"}, trust_env=False, timeout=60)

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self._http.get(path, headers=headers)

    def count(self, messages: Any, **more: Any) -> int:
        answer = self._http.post("/v1/messages/count_tokens", json={"model": "real", "system": SYSTEM, "messages": messages, **more})
        assert answer.status_code == 200, answer.content
        return int(answer.json()["input_tokens"])

    def messages(self, messages: Any, *, stream: bool, **more: Any) -> Told:
        answer = self._http.post("/v1/messages?beta=true", json={"model": "real", "system": SYSTEM, "messages": messages, "stream": stream, **more})
        if answer.status_code != 200:
            return Told(answer.status_code, answer.headers, body=answer.json(), raw=answer.content)
        usages, finish = ([answer.json()["usage"]], answer.json()["stop_reason"]) if not stream else _messages_events(answer.content)
        merged = {name: value for usage in usages for name, value in usage.items()}
        cached = merged.get("cache_read_input_tokens", 0)
        return Told(200, answer.headers, merged.get("input_tokens", 0) + cached, cached, merged["output_tokens"], finish, raw=answer.content)

    def completion(self, prompt: Any, *, stream: bool, **more: Any) -> Told:
        answer = self._http.post("/completion", json={"prompt": prompt, "stream": stream, **more})
        if answer.status_code != 200:
            return Told(answer.status_code, answer.headers, body=answer.json(), raw=answer.content)
        found = [json.loads(line[6:]) for line in answer.content.splitlines() if line.startswith(b"data: {")] if stream else answer.json()
        last = [one for one in (found if isinstance(found, list) else [found]) if one["stop"]]
        read = sum(one["tokens_evaluated"] for one in last)
        return Told(
            200, answer.headers, read, sum(one["timings"]["cache_n"] for one in last), sum(one["tokens_predicted"] for one in last), last[0]["stop_type"],
            raw=answer.content,
        )  # fmt: skip


def _messages_events(raw: bytes) -> tuple[list[Any], str]:
    events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: ")]
    assert events[-1]["type"] in ("message_stop", "server_error")
    starts = [event["message"]["usage"] for event in events if event["type"] == "message_start"]
    deltas = [event for event in events if event["type"] == "message_delta"]
    return [*starts, {"output_tokens": 0}, *(delta["usage"] for delta in deltas)], deltas[-1]["delta"]["stop_reason"] if deltas else ""


def rows_of(gateway: GatewayProcess, run: OpenedRun) -> list[Any]:
    with LedgerReader(gateway.ledger) as reader:
        return list(reader.calls(campaign=run.campaign, run=run.run))


def check_agreement(gateway: GatewayProcess, run: OpenedRun, told: list[Told], spent: Any) -> list[Any]:
    """Where the first token of a stream is half a character, this engine leaves out the event with its prompt: then it is counted."""
    rows = rows_of(gateway, run)
    assert {row["status"] for row in rows} == {"settled"}
    assert {row["source"] for row in rows} == {"reported"}
    known = [(row, one) for row, one in zip(rows, told, strict=True) if one.input]
    assert [(row["input_tokens"], row["cached_tokens"]) for row, one in known] == [(one.input, one.cached) for row, one in known]
    assert [row["output_tokens"] for row in rows] == [one.output for one in told]
    assert spent.output_tokens == sum(one.output for one in told)
    read = sum(row["input_tokens"] - (row["cached_tokens"] or 0) for row in rows)
    assert spent.prompt_tokens == read if len(known) == len(rows) else 0 < spent.prompt_tokens <= read
    return rows


def growing(number: int) -> list[Any]:
    talk: list[Any] = [{"role": "user", "content": "What is a ledger?"}]
    for turn in range(number):
        use = {"type": "tool_use", "id": f"toolu_{turn}", "name": "look_1", "input": {"what": 'a "quote" and é'}}
        talk.append({"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, use]})
        result = {"type": "tool_result", "tool_use_id": f"toolu_{turn}", "content": [{"type": "text", "text": "found: 漢字"}]}
        talk.append({"role": "user", "content": [result, {"type": "text", "text": f"And number {turn}?"}]})
    return talk


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_messages_agree_to_the_token(gateway: GatewayProcess, real: RealEngine, stream: bool) -> None:
    run = gateway.opened("messages", f"stream-{int(stream)}", policy="free")
    agent, before = Agent(gateway, run), real.counters()
    told = [agent.messages(growing(number), stream=stream, tools=TOOLS, max_tokens=12) for number in range(3)]
    rows = check_agreement(gateway, run, told, real.counters() - before)
    assert all(row["reserved_input_tokens"] >= row["input_tokens"] for row in rows)
    assert [row["outcome"] for row in rows] == ["length" if one.output >= 12 else "completed" for one in told]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_native_completions_agree_to_the_token(gateway: GatewayProcess, real: RealEngine, stream: bool) -> None:
    run = gateway.opened("native", f"stream-{int(stream)}", policy="free")
    agent, before = Agent(gateway, run), real.counters()
    told = [agent.completion(prompt, stream=stream, n_predict=8, model="real") for prompt in ("Once upon a time", [1, 2, 3], ["a", 4, "<|im_end|>"])]
    rows = check_agreement(gateway, run, told, real.counters() - before)
    assert all(row["reserved_input_tokens"] >= row["input_tokens"] for row in rows)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_several_native_prompts_are_each_counted(gateway: GatewayProcess, real: RealEngine, stream: bool) -> None:
    run = gateway.opened("several", f"stream-{int(stream)}", policy="free")
    before = real.counters()
    told = Agent(gateway, run).completion(["Once upon", "The end of it all"], stream=stream, n_predict=6, model="real")
    check_agreement(gateway, run, [told], real.counters() - before)
    assert told.output == 12 or real.spec.alias != "tiny"


def test_what_is_reserved_is_what_is_reported_where_the_engine_counts(gateway: GatewayProcess, real: RealEngine) -> None:
    run = gateway.opened("counted", "r1", policy="counted")
    agent = Agent(gateway, run)
    long = 3_000 if real.spec.alias == "tiny" else 800  # so much that the bound leaves no room for it
    for number in range(3):
        # Offered tools, the tiny model's noise may be no answer that this engine can read: then it fails, and there is no report.
        assert agent.messages(growing(number), stream=bool(number % 2), tools=TOOLS, max_tokens=long, stop_sequences=["e"]).status in (200, 500)
        assert agent.messages(growing(number), stream=bool(number % 2), max_tokens=long, stop_sequences=["e"]).status == 200
    for prompt in ("Once upon a time " * 5, ["a", 4, "<|im_end|>", "b"]):
        assert agent.completion(prompt, stream=False, n_predict=long, stop=["e"], model="real").status == 200
    rows = [row for row in rows_of(gateway, run) if row["source"] == "reported"]
    assert len(rows) >= 5
    assert [row["reserved_input_tokens"] for row in rows] == [row["input_tokens"] for row in rows]
    assert "count_drift" not in str([row["flags"] for row in rows])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("api", ["messages", "completion"])
def test_a_cap_of_output_is_spent_to_its_last_token_by_every_alias(gateway: GatewayProcess, real: RealEngine, api: str, stream: bool) -> None:
    run = gateway.opened("output", f"{api}-{int(stream)}", policy="output")
    agent, before = Agent(gateway, run), real.counters()
    told: list[Told] = []
    for name in ("n_predict", "max_tokens", "max_completion_tokens", "n_predict", "max_tokens", "max_tokens") * 10:
        more: Any = {name: 5_000 if len(told) > 1 else 40, "ignore_eos": True}
        one = agent.messages(growing(0), stream=stream, **more) if api == "messages" else agent.completion("Once", stream=stream, model="real", **more)
        if one.status != 200:
            break
        told.append(one)
    assert sum(each.output for each in told) == OUTPUT_CAP
    assert told[-1].headers["x-gateway-clamped"].endswith(" run.output_tokens")
    check_agreement(gateway, run, told, real.counters() - before)
    assert one.status == (402 if api == "messages" else 400)


def test_a_final_refusal_has_each_formats_words(gateway: GatewayProcess) -> None:
    run = gateway.opened("requests", "r1", policy="requests")
    agent = Agent(gateway, run)
    assert agent.messages(growing(0), stream=True, max_tokens=2).status == 200
    assert agent.completion("a", stream=True, n_predict=2).status == 200
    for stream in (False, True):
        refused = agent.messages(growing(0), stream=stream, max_tokens=2)
        assert refused.status == 402
        assert refused.body["type"] == "error"
        assert (refused.body["error"]["type"], refused.body["error"]["code"]) == ("billing_error", "run_budget_reached")
        native = agent.completion("a", stream=stream, n_predict=2)
        assert (native.status, native.body["code"], type(native.body["error"])) == (400, "run_budget_reached", str)
        for one in (refused, native):
            assert one.headers["x-should-retry"] == "false"
            assert "retry-after" not in one.headers
            assert not any(character in b"0123456789" for character in one.raw)
    eventually(lambda: gateway.control.get("/v1/campaigns/requests/runs/r1"), "the run is shown")


def test_lists_of_models_come_in_the_form_that_is_asked_for(gateway: GatewayProcess) -> None:
    agent = Agent(gateway, gateway.opened("lists", "r1", policy="free"))
    listed = agent.get("/v1/models").json()
    assert [(one["type"], one["id"]) for one in listed["data"]] == [("model", "real")]
    assert [one["name"] for one in agent.get("/api/tags").json()["models"]] == ["real"]


def test_what_count_tokens_says_is_what_a_call_uses_and_costs_nothing(gateway: GatewayProcess) -> None:
    run = gateway.opened("counting", "r1", policy="free")
    agent = Agent(gateway, run)
    counted = [agent.count(growing(number), tools=TOOLS) for number in range(3)]
    assert rows_of(gateway, run) == []
    told = [agent.messages(growing(number), stream=False, tools=TOOLS, max_tokens=1) for number in range(3)]
    assert counted == [one.input for one in told]
