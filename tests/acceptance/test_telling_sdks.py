"""What clients do with what they are told: the OpenAI SDK as it comes, and the rule of retries that the Anthropic SDK has too, played over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai
import pytest

from tests.support.final_ways import FINAL, POLICIES
from tests.support.gateway_process import POLICY, GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawClient
from tests.support.toml import merged

MESSAGES: Any = [{"role": "user", "content": "hello there"}]


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    whole = {name: merged(POLICY, tables) for name, tables in POLICIES.items()}
    with GatewayProcess(tmp_path_factory.mktemp("sdks"), mock.url, policies=whole, slots=16) as process:
        yield process


@pytest.fixture(autouse=True)
def _plain(mock: MockProcess) -> None:
    mock.script({"output_tokens": 4})
    mock.clear()


@dataclass(slots=True)
class Requests:
    """What really went over the wire, with the answers."""

    statuses: list[int] = field(default_factory=list)

    def seen(self, answer: httpx.Response) -> None:
        self.statuses.append(answer.status_code)


def sdk(gateway: GatewayProcess, key: str) -> tuple[openai.OpenAI, Requests]:
    """With the retries that it has by default."""
    requests = Requests()
    http_client = openai.DefaultHttpxClient(trust_env=False, event_hooks={"response": [requests.seen]})
    return openai.OpenAI(base_url=f"{gateway.address}/v1", api_key=key, http_client=http_client), requests


def say(client: openai.OpenAI, *, stream: bool = False, max_tokens: int = 4) -> Any:
    if stream:
        return list(client.chat.completions.create(model="mock", messages=MESSAGES, max_tokens=max_tokens, stream=True))
    return client.chat.completions.create(model="mock", messages=MESSAGES, max_tokens=max_tokens)


def like_anthropics(gateway: GatewayProcess, key: str, path: str = "/v1/chat/completions") -> list[int]:
    """The statuses of one call: its key in a header of its own, two retries, `x-should-retry` before all, else 408, 409, 429 and from 500 on."""
    statuses = []
    headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    with httpx.Client(trust_env=False, headers=headers) as client:
        for attempt in range(3):
            answer = client.post(gateway.address + path, json={"model": "mock", "messages": MESSAGES, "max_tokens": 4})
            statuses.append(answer.status_code)
            should = answer.headers.get("x-should-retry")
            again = should == "true" or (should != "false" and (answer.status_code in (408, 409, 429) or answer.status_code >= 500))
            if not again or attempt == 2:
                break
            time.sleep(float(answer.headers.get("retry-after", 0.5)))
    return statuses


# -- final refusals


@pytest.mark.parametrize("name", FINAL)
def test_after_one_refused_call_the_clients_stop(gateway: GatewayProcess, mock: MockProcess, name: str) -> None:
    policy, prepare, code = FINAL[name]
    run = gateway.opened(f"final-{list(FINAL).index(name)}", "r1", policy=policy)
    mock.script({"output_tokens": 4, "tool_calls": 1 if name == "tool calls" else 0})
    prepare(gateway, run)
    mock.clear()
    client, requests = sdk(gateway, run.key)
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError) as caught:
            say(client, stream=stream)
        assert caught.value.code == code
    assert requests.statuses == [404, 404], "each call went out once"
    assert like_anthropics(gateway, run.key) == [404]
    assert mock.calls() == []


def test_a_prompt_above_the_context_is_a_bad_request_and_not_tried_again(gateway: GatewayProcess, mock: MockProcess) -> None:
    client, requests = sdk(gateway, gateway.opened("context", "r1", policy="context").key)
    with pytest.raises(openai.BadRequestError):
        say(client)
    assert requests.statuses == [400] and mock.calls() == []


def test_what_is_not_declared_is_asked_for_once(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("undeclared", "r1", policy="open")
    client, requests = sdk(gateway, run.key)
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="mock", input="a")
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="another", messages=MESSAGES)
    assert requests.statuses == [404, 404]
    assert like_anthropics(gateway, run.key, "/v1/messages") == [404]
    assert mock.calls() == []


def test_an_unknown_key_is_tried_once(gateway: GatewayProcess) -> None:
    client, requests = sdk(gateway, "gw-nobody")
    with pytest.raises(openai.AuthenticationError):
        say(client)
    assert requests.statuses == [401] and like_anthropics(gateway, "gw-nobody") == [401]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_call_that_is_cut_is_an_error_and_not_sent_again(gateway: GatewayProcess, mock: MockProcess, stream: bool) -> None:
    mock.script({"gap_ms": 40, "output_tokens": 60})
    run = gateway.opened(f"cut-{'stream' if stream else 'whole'}", "r1", policy="wall")
    client, requests = sdk(gateway, run.key)
    with pytest.raises(openai.APIError) as caught:
        say(client, stream=stream, max_tokens=64)
    assert caught.value.code == "run_budget_reached"
    assert requests.statuses == [200 if stream else 404] and len(mock.calls()) == 1
    with pytest.raises(openai.NotFoundError):
        say(client)
    assert len(requests.statuses) == 2, "one refused call more, and that is all"


# -- passing refusals


def test_a_busy_run_is_tried_again_by_the_clients_and_answers(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("busy", "r1", policy="no-wait")
    client, requests = sdk(gateway, run.key)
    mock.script([{"gap_ms": 30, "output_tokens": 30}])
    with RawClient(gateway.port) as holder:
        holder.chat(run.key, stream=True, max_tokens=64)
        holder.read_events(3)
        assert say(client).choices[0].message.content
        assert holder.answer().complete
    assert requests.statuses == [429, 200]
    mock.script([{"gap_ms": 30, "output_tokens": 30}])
    with RawClient(gateway.port) as holder:
        holder.chat(run.key, stream=True, max_tokens=64)
        holder.read_events(3)
        assert like_anthropics(gateway, run.key) == [429, 200]
        assert holder.answer().complete
    assert gateway.control.close_run(run)["receipt"]["totals"]["refused"] == {"busy": 2}


def test_a_halted_campaign_is_tried_again_by_the_clients_and_answers_when_it_goes_on(gateway: GatewayProcess) -> None:
    run = gateway.opened("halted", "r1", policy="no-wait")
    client, requests = sdk(gateway, run.key)
    gateway.control.post("/v1/campaigns/halted/halt")
    timer = threading.Timer(1, lambda: gateway.control.post("/v1/campaigns/halted/resume"))
    timer.start()
    assert say(client).choices[0].message.content
    timer.join()
    assert requests.statuses == [429, 200]


# -- what is left, and the warning


def test_what_clients_are_told_is_left_never_rises_and_they_are_warned_once_a_limit(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("left", "r1", policy="left")
    client, requests = sdk(gateway, run.key)
    mock.script({"output_tokens": 4, "gap_ms": 1})

    def one(_: int) -> tuple[int, int, dict[str, int], str]:
        began = time.monotonic_ns()
        answer = client.chat.completions.with_raw_response.create(model="mock", messages=MESSAGES, max_tokens=8)
        headers = answer.headers
        left = {name: int(headers[f"x-gateway-left-{name}"]) for name in ("requests", "input", "output")}
        return began, time.monotonic_ns(), left, headers.get("x-gateway-warning", "")

    with ThreadPoolExecutor(20) as pool:
        told = list(pool.map(one, range(160)))
    assert set(requests.statuses) == {200}
    for name in ("requests", "input", "output"):
        lowest_before = _lowest_before(told, name)
        assert all(left[name] <= lowest_before[began] for began, _, left, _ in told), name
    assert sorted(warning for _, _, _, warning in told if warning) == ["run.output_tokens", "run.requests"], "each once; of input little is spent"


def _lowest_before(told: list[tuple[int, int, dict[str, int], str]], name: str) -> dict[int, int]:
    """For each call the least that anyone had been told when it began."""
    return {began: min((left[name] for _, ended, left, _ in told if ended < began), default=1 << 60) for began, _, _, _ in told}
