"""The real OpenAI SDK on a real llama.cpp, to the end of a budget: what the SDK was told, what the ledger holds and what the engine counted agree to the token.

The engine's prompt counter leaves out what it took from its cache, so it is held against input - cached.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest

from gateway.demo.engine import RealEngine
from gateway.ledger.reading import LedgerReader
from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.sdk import async_openai_client, openai_client
from tests.support.waiting import eventually

ASKED_OUTPUT = 24
CALLS = 6
OUTPUT_CAP = 100
INPUT_CAPS = {"tiny": 5_000, "smollm2": 900}
CONTEXTS = {"tiny": 2_000, "smollm2": 500}
"""So small that a bound leaves no room for what a call asks, and each prompt is counted. The tiny model's tokens are bytes."""
RETRIES = 2
"""The SDK's own default."""
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": f"look_{number}",
            "description": 'Looks up "things", e.g. élan or 漢字.',
            "parameters": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
        },
    }
    for number in range(2)
]
SYSTEM = "You keep a ledger and answer in one short sentence. " * 6
CLAMPS: Any = {"admission": {"min_output_tokens": 1, "enough_output_tokens": 1, "queue_seconds": 20}}


@dataclass(slots=True)
class Side:
    """What a client adds up."""

    calls: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    clamped: list[str] = field(default_factory=list)

    def add(self, usage: Any) -> None:
        assert usage is not None
        self.calls += 1
        self.input += usage.prompt_tokens
        self.output += usage.completion_tokens
        self.cached += (usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens) or 0


@pytest.fixture(scope="module", params=["tiny", "smollm2"])
def real(request: pytest.FixtureRequest) -> RealEngine:
    engine: RealEngine = request.getfixturevalue(request.param)
    return engine


@pytest.fixture(scope="module")
def gateway(real: RealEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    plain: Any = {"apis": ["openai.chat", "openai.models"], "models": {"real": {"default_output_tokens": ASKED_OUTPUT}}}
    counted: Any = {"models": {"real": {"default_output_tokens": ASKED_OUTPUT, "context_tokens": CONTEXTS[real.spec.alias]}}}
    policies = {
        "requests": plain | {"run": {"requests": CALLS}},
        "output": plain | CLAMPS | {"run": {"output_tokens": OUTPUT_CAP}},
        "input": plain | {"run": {"input_tokens": INPUT_CAPS[real.spec.alias]}},
        "counted": plain | counted,
    }
    policy: Any = {"models": {"real": {"default_output_tokens": ASKED_OUTPUT}}}
    models = {"real": real.spec.alias, "mock": real.spec.alias}
    with GatewayProcess(tmp_path_factory.mktemp("real"), real.address, policies=policies, policy=policy, models=models, slots=real.spec.slots) as process:
        yield process


def says_letters_only(real: RealEngine) -> dict[str, Any]:
    """Where tools are offered, the tiny model's noise may be no answer that llama.cpp can read, and then the engine fails: so it says nothing but letters."""
    return {"logit_bias": {str(token): 100 for letter in "hijklmno" for token in real_tokens(real, letter)}}


def real_tokens(real: RealEngine, text: str) -> list[int]:
    asked = urllib.request.Request(real.address + "/tokenize", json.dumps({"content": text}).encode(), {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=30) as answer:
        tokens: list[int] = json.loads(answer.read())["tokens"]
    return tokens


class Talk:
    """A conversation that grows by its answers, by tool calls and their results; every other call streams."""

    def __init__(self, gateway: GatewayProcess, run: OpenedRun, real: RealEngine) -> None:
        self.client = openai_client(gateway.address, run.key, max_retries=RETRIES)
        self.steady = says_letters_only(real) if real.spec.alias == "tiny" else {}
        self.messages: list[Any] = [{"role": "system", "content": SYSTEM}]
        self.side = Side()

    def turn(self, **options: Any) -> None:
        """Raises what the SDK raises."""
        number = self.side.calls
        self.messages.append({"role": "user", "content": f"Question {number}: what is a ledger, in {number + 3} words?"})
        asked: Any = {"model": "real", "messages": self.messages, "tools": TOOLS, "max_tokens": ASKED_OUTPUT, **self.steady, **options}
        text = self._streamed(asked) if number % 2 else self._whole(asked)
        self.messages.append({"role": "assistant", "content": text[:60] or "(nothing)"})
        if number % 2:
            function = {"name": "look_1", "arguments": '{"what": "a \\"quote\\" and é"}'}
            self.messages.append({"role": "assistant", "content": None, "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}]})
            self.messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": "found: 漢字"})

    def _whole(self, asked: Any) -> str:
        raw = self.client.chat.completions.with_raw_response.create(**asked)
        self._heads(raw.headers)
        answer = raw.parse()
        self.side.add(answer.usage)
        return answer.choices[0].message.content or ""

    def _streamed(self, asked: Any) -> str:
        raw = self.client.chat.completions.with_raw_response.create(**asked, stream=True, stream_options={"include_usage": True})
        self._heads(raw.headers)
        text, usage = "", None
        for chunk in raw.parse():
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            usage = chunk.usage or usage
        self.side.add(usage)
        return text

    def _heads(self, headers: Any) -> None:
        if "x-gateway-clamped" in headers:
            self.side.clamped.append(headers["x-gateway-clamped"])

    def until_refused(self) -> openai.NotFoundError:
        with pytest.raises(openai.NotFoundError) as refused:
            for _ in range(50):
                self.turn()
        return refused.value


def rows_of(gateway: GatewayProcess, run: OpenedRun) -> list[Any]:
    with LedgerReader(gateway.ledger) as reader:
        return list(reader.calls(campaign=run.campaign, run=run.run))


def refusals_of(gateway: GatewayProcess, run: OpenedRun) -> list[Any]:
    with LedgerReader(gateway.ledger) as reader:
        return list(reader.refusals(campaign=run.campaign, run=run.run))


def check_agreement(gateway: GatewayProcess, run: OpenedRun, side: Side, spent: Any) -> None:
    """SDK, ledger and engine, to the token."""
    rows = rows_of(gateway, run)
    assert {row["source"] for row in rows} == {"reported"}
    assert {row["status"] for row in rows} == {"settled"}
    ledger = tuple(sum(row[name] for row in rows) for name in ("input_tokens", "cached_tokens", "output_tokens"))
    assert (len(rows), *ledger) == (side.calls, side.input, side.cached, side.output)
    assert spent.prompt_tokens == side.input - side.cached
    assert spent.output_tokens == side.output
    usage = gateway.control.close_run(run)["receipt"]["totals"]["usage"]
    assert [usage["input_tokens"], usage["output_tokens"]] == [{"sum": side.input, "unknown": 0}, {"sum": side.output, "unknown": 0}]


def check_refused_once(gateway: GatewayProcess, run: OpenedRun, refused: openai.NotFoundError, limit: str) -> None:
    """The SDK would try again twice; it does not."""
    assert refused.response.headers["x-gateway-limit"] == limit
    assert refused.response.headers["x-should-retry"] == "false"
    assert refused.body is not None
    assert not any(character.isdigit() for character in refused.message.partition("-")[2])
    eventually(lambda: refusals_of(gateway, run), "the refusal is on record")  # the agent does not wait for it
    [row] = refusals_of(gateway, run)
    assert (row["code"], row["final"]) == ("run_budget_reached", 1)


def test_a_run_is_spent_to_its_cap_of_requests(gateway: GatewayProcess, real: RealEngine) -> None:
    run = gateway.opened("requests", "r1", policy="requests")
    talk, before = Talk(gateway, run, real), real.counters()
    refused = talk.until_refused()
    assert talk.side.calls == CALLS
    check_refused_once(gateway, run, refused, "run.requests")
    check_agreement(gateway, run, talk.side, real.counters() - before)


def test_a_run_is_spent_to_its_cap_of_output_and_the_last_call_is_clamped(gateway: GatewayProcess, real: RealEngine) -> None:
    run = gateway.opened("output", "r1", policy="output")
    talk, before = Talk(gateway, run, real), real.counters()
    refused = talk.until_refused()
    assert talk.side.output == OUTPUT_CAP, "every token of it was used, and none above"
    assert talk.side.clamped and all(value.endswith(" run.output_tokens") for value in talk.side.clamped)
    check_refused_once(gateway, run, refused, "run.output_tokens")
    check_agreement(gateway, run, talk.side, real.counters() - before)


def test_a_run_is_spent_to_its_cap_of_input_by_the_engines_own_count(gateway: GatewayProcess, real: RealEngine) -> None:
    run = gateway.opened("input", "r1", policy="input")
    talk, before = Talk(gateway, run, real), real.counters()
    refused = talk.until_refused()
    spent = real.counters() - before
    headers = refused.response.headers
    check_refused_once(gateway, run, refused, "run.input_tokens")
    settled, asked = int(headers["x-gateway-settled"]), int(headers["x-gateway-asked"])
    assert settled == talk.side.input <= INPUT_CAPS[real.spec.alias] < settled + asked
    assert talk.side.calls >= 2
    check_agreement(gateway, run, talk.side, spent)
    direct: Any = {"model": real.spec.alias, "messages": talk.messages, "tools": TOOLS, "max_tokens": 1, **talk.steady}
    usage = openai_client(real.address).chat.completions.create(**direct).usage
    assert usage is not None and usage.prompt_tokens == asked, "what was refused is what the engine would have counted"
    assert all(row["reserved_input_tokens"] >= row["input_tokens"] for row in rows_of(gateway, run))
    assert "overshoot" not in str([row["flags"] for row in rows_of(gateway, run)])


def test_what_is_reserved_is_what_is_reported_where_the_engine_counts(gateway: GatewayProcess, real: RealEngine) -> None:
    run = gateway.opened("counted", "r1", policy="counted")
    talk, before = Talk(gateway, run, real), real.counters()
    for _ in range(4):
        talk.turn(max_tokens=CONTEXTS["tiny"] if real.spec.alias == "tiny" else ASKED_OUTPUT)
    rows = rows_of(gateway, run)
    assert [row["reserved_input_tokens"] for row in rows] == [row["input_tokens"] for row in rows]
    assert sorted(row["input_tokens"] for row in rows) == [row["input_tokens"] for row in rows], "the conversation grew"
    assert "count_drift" not in str([row["flags"] for row in rows])
    check_agreement(gateway, run, talk.side, real.counters() - before)


async def test_callers_side_by_side_spend_a_cap_together_to_the_token(gateway: GatewayProcess, real: RealEngine) -> None:
    run = gateway.opened("output", "together", policy="output")
    client, side, before = async_openai_client(gateway.address, run.key, max_retries=RETRIES), Side(), real.counters()

    async def caller(number: int) -> None:
        messages: Any = [{"role": "user", "content": f"Caller {number} says hello."}]
        for _ in range(20):
            stream = await client.chat.completions.create(
                model="real", messages=messages, max_tokens=ASKED_OUTPUT, stream=True, stream_options={"include_usage": True}
            )
            side.add([chunk.usage async for chunk in stream][-1])

    ends = await asyncio.gather(*(caller(number) for number in range(4)), return_exceptions=True)
    assert [type(end) for end in ends] == [openai.NotFoundError] * 4
    assert side.output == OUTPUT_CAP
    check_agreement(gateway, run, side, real.counters() - before)


def test_the_sdk_lists_the_declared_models_only(gateway: GatewayProcess) -> None:
    run = gateway.opened("requests", "models", policy="requests")
    assert [model.id for model in openai_client(gateway.address, run.key).models.list()] == ["real"]
    assert rows_of(gateway, run) == [], "asking for the list is no call"


def test_the_ledger_adds_up(gateway: GatewayProcess) -> None:
    with LedgerReader(gateway.ledger) as reader:
        verification = reader.verify()
    assert verification.fits, verification
