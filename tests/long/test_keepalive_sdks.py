"""Comments before the first event disturb no SDK: each format's stream, read by the SDK that its agents use, while the engine is silent for longer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.support import record
from tests.support.gateway_process import POLICY, GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.toml import merged

KEEPALIVE_S, SILENT_MS = 1, 2_200
SLOW = {"output_tokens": 6, "prefill_ms": SILENT_MS}
APIS = ["openai.chat", "openai.responses", "anthropic.messages"]
MESSAGES: Any = [{"role": "user", "content": "hello there"}]


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    settings: Any = {"bounds": {"keepalive_after_s": KEEPALIVE_S}}
    with GatewayProcess(tmp_path_factory.mktemp("keepalive"), mock.url, settings=settings, policy=merged(POLICY, {"apis": APIS})) as process:
        yield process


class Heads:
    """When each answer's head came, in ms from its request."""

    def __init__(self) -> None:
        self.came: list[float] = []
        self._asked = 0.0

    @property
    def hooks(self) -> dict[str, list[Callable[..., Any]]]:
        return {"request": [self._request], "response": [self._response]}

    def _request(self, _: httpx.Request) -> None:
        self._asked = time.monotonic()

    def _response(self, _: httpx.Response) -> None:
        self.came.append((time.monotonic() - self._asked) * 1_000)


def openai_of(gateway: GatewayProcess, key: str, heads: Heads) -> openai.OpenAI:
    http_client = openai.DefaultHttpxClient(trust_env=False, event_hooks=heads.hooks)
    return openai.OpenAI(base_url=f"{gateway.address}/v1", api_key=key, max_retries=0, http_client=http_client)


def chat(gateway: GatewayProcess, key: str, heads: Heads) -> str:
    stream = openai_of(gateway, key, heads).chat.completions.create(model="mock", messages=MESSAGES, max_tokens=60, stream=True)
    return "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)


def responses(gateway: GatewayProcess, key: str, heads: Heads) -> str:
    with openai_of(gateway, key, heads).responses.stream(model="mock", input="hello there", max_output_tokens=60) as stream:
        return stream.get_final_response().output_text


def messages(gateway: GatewayProcess, key: str, heads: Heads) -> str:
    http_client = anthropic.DefaultHttpxClient(trust_env=False, event_hooks=heads.hooks)
    client = anthropic.Anthropic(base_url=gateway.address, api_key=key, max_retries=0, http_client=http_client)
    with client.messages.stream(model="mock", messages=MESSAGES, max_tokens=60) as stream:
        return stream.get_final_text()


READERS = {"openai.chat": chat, "openai.responses": responses, "anthropic.messages": messages}


@pytest.mark.parametrize("api", APIS)
def test_an_sdk_reads_an_answer_that_comments_came_before(gateway: GatewayProcess, mock: MockProcess, api: str) -> None:
    mock.script({"output_tokens": 6})
    run, heads = gateway.opened(api.replace(".", "-"), "r1"), Heads()
    plain = READERS[api](gateway, run.key, heads)
    mock.script(SLOW)
    assert READERS[api](gateway, run.key, heads).split()[:1] == plain.split()[:1] != []
    quick, slow = heads.came
    assert quick < SILENT_MS - 700
    assert KEEPALIVE_S * 1_000 <= slow < SILENT_MS, "the head came with a comment, before the engine had said anything"
    rows = [row for row in record.calls(gateway) if row["campaign"] == run.campaign]
    assert [row["outcome"] for row in rows] == ["completed"] * 2 and rows[0]["output_tokens"] == rows[1]["output_tokens"] == 6


@pytest.mark.parametrize(("api", "raised"), [("openai.chat", openai.APIError), ("openai.responses", RuntimeError), ("anthropic.messages", anthropic.APIError)])
def test_an_sdk_is_told_of_an_engine_that_dies_after_comments(gateway: GatewayProcess, mock: MockProcess, api: str, raised: type[Exception]) -> None:
    """The status is spent: it is the format's own error event. OpenAI's helper for Responses says of any answer that failed that it was not completed."""
    mock.script({**SLOW, "die": "eof", "die_after": 2})
    run, heads = gateway.opened("dies-" + api.replace(".", "-"), "r1"), Heads()
    with pytest.raises(raised):
        READERS[api](gateway, run.key, heads)
    assert heads.came[0] < SILENT_MS
    [row] = [row for row in record.calls(gateway) if row["campaign"] == run.campaign]
    assert row["outcome"] == "engine_died"
