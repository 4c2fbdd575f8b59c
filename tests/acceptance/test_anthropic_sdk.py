"""The Anthropic SDK as it comes: it reads answers of a scripted and of a real engine, stops after one refused call where that is final, and reads every cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from gateway.demo.engine import RealEngine
from tests.support import record
from tests.support.final_ways import FINAL, POLICIES
from tests.support.gateway_process import POLICY, GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawClient
from tests.support.toml import Tables, merged

APIS: Tables = {"apis": ["openai.chat", "openai.models", "anthropic.messages", "anthropic.count_tokens"]}
MESSAGES: Any = [{"role": "user", "content": "hello there"}]
TOOLS: Any = [{"name": "tool_1", "description": "looks", "input_schema": {"type": "object", "properties": {"what": {"type": "string"}}}}]
WAYS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    whole = {name: merged(merged(POLICY, APIS), tables) for name, tables in POLICIES.items()}
    with GatewayProcess(tmp_path_factory.mktemp("anthropic"), mock.url, policies=whole, slots=16) as process:
        yield process


@pytest.fixture(autouse=True)
def _plain(mock: MockProcess) -> None:
    mock.script({"output_tokens": 4})
    mock.clear()


def sdk(gateway: GatewayProcess, key: str) -> tuple[anthropic.Anthropic, list[int]]:
    """With the retries that it has by default, and what really went over the wire."""
    statuses: list[int] = []
    http_client = anthropic.DefaultHttpxClient(trust_env=False, event_hooks={"response": [lambda answer: statuses.append(answer.status_code)]})
    return anthropic.Anthropic(base_url=gateway.address, api_key=key, http_client=http_client), statuses


def say(client: anthropic.Anthropic, *, stream: bool, model: str = "mock", max_tokens: int = 4, **more: Any) -> anthropic.types.Message:
    if not stream:
        message: anthropic.types.Message = client.messages.create(model=model, messages=MESSAGES, max_tokens=max_tokens, **more)
        return message
    with client.messages.stream(model=model, messages=MESSAGES, max_tokens=max_tokens, **more) as events:
        return events.get_final_message()


def error_of(raised: pytest.ExceptionInfo[anthropic.APIStatusError]) -> dict[str, Any]:
    body = raised.value.body
    assert isinstance(body, dict)
    error: dict[str, Any] = body["error"]
    return error


# -- answers


@WAYS
def test_it_reads_text_thinking_and_tool_calls(gateway: GatewayProcess, mock: MockProcess, stream: bool) -> None:
    client, statuses = sdk(gateway, gateway.opened(f"reads-{stream}".lower(), "r1", policy="open").key)
    mock.script({"reasoning_tokens": 3, "output_tokens": 20, "tool_calls": [{"name": "tool_1", "arguments": '{"what":"a"}'}]})
    message = say(client, stream=stream, max_tokens=64, tools=TOOLS)
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert (message.stop_reason, message.content[-1].input) == ("tool_use", {"what": "a"})
    assert statuses == [200]
    row = record.calls(gateway)[-1]
    assert record.ending(row) == ("completed", "reported")
    assert record.usage(row) == (message.usage.input_tokens, message.usage.output_tokens)


def test_it_counts_a_prompt_without_a_call(gateway: GatewayProcess) -> None:
    run = gateway.opened("counts", "r1", policy="open")
    client, _ = sdk(gateway, run.key)
    assert client.messages.count_tokens(model="mock", messages=MESSAGES).input_tokens > 0
    assert not [row for row in record.calls(gateway) if row["campaign"] == "counts"]


def test_a_real_engines_answers_are_read_and_agree_with_the_ledger(tmp_path_factory: pytest.TempPathFactory, smollm2: RealEngine) -> None:
    policy = merged(merged(POLICY, APIS), {"run": {"output_tokens": 40}, "admission": {"min_output_tokens": 1, "enough_output_tokens": 1}})
    folder = tmp_path_factory.mktemp("anthropic-real")
    with GatewayProcess(folder, smollm2.address, policies={"real": policy}, models={"mock": "smollm2"}) as gateway:
        client, statuses = sdk(gateway, gateway.opened("c", "r1", policy="real").key)
        for number, stream in enumerate((False, True)):
            message = say(client, stream=stream, max_tokens=20, extra_body={"temperature": 0.0})
            assert message.content[0].text.strip() and message.stop_reason in ("end_turn", "max_tokens")
            used, row = message.usage, record.calls(gateway)[number]
            assert row["source"] == "reported"
            assert record.usage(row) == (used.input_tokens + (used.cache_read_input_tokens or 0), used.output_tokens)
        while sum(row["output_tokens"] for row in record.calls(gateway)) < 40:
            say(client, stream=True, max_tokens=20)
        sent = len(statuses)
        with pytest.raises(anthropic.APIStatusError) as raised:
            say(client, stream=True, max_tokens=20)
        assert (raised.value.status_code, error_of(raised)["type"]) == (402, "billing_error")
        assert statuses[sent:] == [402], "it went out once"
        assert record.fits(gateway)


# -- refusals


@pytest.mark.parametrize("name", FINAL)
def test_after_one_refused_call_it_stops(gateway: GatewayProcess, mock: MockProcess, name: str) -> None:
    policy, prepare, _ = FINAL[name]
    run = gateway.opened(f"final-{list(FINAL).index(name)}", "r1", policy=policy)
    mock.script({"output_tokens": 4, "tool_calls": 1 if name == "tool calls" else 0})
    prepare(gateway, run)
    mock.clear()
    client, statuses = sdk(gateway, run.key)
    for stream in (False, True):
        with pytest.raises(anthropic.APIStatusError) as raised:
            say(client, stream=stream)
        assert (raised.value.status_code, error_of(raised)["type"]) == (402, "billing_error")
    assert statuses == [402, 402], "each call went out once"
    assert mock.calls() == []


def test_a_prompt_above_the_context_is_a_bad_request_that_says_so_and_goes_out_once(gateway: GatewayProcess) -> None:
    client, statuses = sdk(gateway, gateway.opened("context", "r1", policy="context").key)
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        say(client, stream=True)
    assert statuses == [400]


def test_an_unknown_key_and_an_unknown_model_go_out_once(gateway: GatewayProcess) -> None:
    client, statuses = sdk(gateway, "gw-nobody")
    with pytest.raises(anthropic.AuthenticationError):
        say(client, stream=False)
    client, others = sdk(gateway, gateway.opened("unknown", "r1", policy="open").key)
    with pytest.raises(anthropic.NotFoundError):
        say(client, stream=False, model="another")
    assert (statuses, others) == ([401], [404])


def test_a_busy_run_is_tried_again_and_answers(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("busy", "r1", policy="no-wait")
    client, statuses = sdk(gateway, run.key)
    mock.script([{"gap_ms": 30, "output_tokens": 30}])
    with RawClient(gateway.port) as holder:
        holder.chat(run.key, stream=True, max_tokens=64)
        holder.read_events(3)
        assert say(client, stream=True).content
        assert holder.answer().complete
    assert statuses == [429, 200]


# -- cuts


@WAYS
def test_a_call_that_is_cut_is_an_error_and_not_sent_again(gateway: GatewayProcess, mock: MockProcess, stream: bool) -> None:
    mock.script({"gap_ms": 40, "output_tokens": 60})
    client, statuses = sdk(gateway, gateway.opened(f"cut-{stream}".lower(), "r1", policy="wall").key)
    with pytest.raises(anthropic.APIStatusError) as raised:
        say(client, stream=stream, max_tokens=64)
    assert error_of(raised)["type"] == "billing_error"
    assert statuses == [200 if stream else 402]
    with pytest.raises(anthropic.APIStatusError) as raised:
        say(client, stream=stream)
    assert raised.value.status_code == 402 and len(statuses) == 2, "one refused call more, and that is all"


def test_an_engine_that_runs_past_its_ceiling_ends_in_a_length_end_with_usage(gateway: GatewayProcess, mock: MockProcess) -> None:
    mock.script({"ignore_cap": True, "output_tokens": 300, "gap_ms": 2})
    client, statuses = sdk(gateway, gateway.opened("ignores", "r1", policy="open").key)
    message = say(client, stream=True, max_tokens=20)
    assert message.stop_reason == "max_tokens" and message.content[0].text
    assert statuses == [200]
    row = next(row for row in record.calls(gateway) if row["campaign"] == "ignores")
    assert row["outcome"] == "cap_cut" and message.usage.output_tokens == row["output_tokens"]
