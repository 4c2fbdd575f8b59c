"""Plain completions and Responses on a real llama.cpp, by the real SDK: what it was told, what the ledger holds and what the engine counted agree to the token.

The engine's prompt counter leaves out what it took from its cache, so it is held against input - cached.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types import CompletionUsage as Usage

from gateway.demo.engine import RealEngine
from gateway.ledger.reading import LedgerReader
from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.sdk import openai_client

OUTPUT = 12
CAP = 40
APIS = ["openai.chat", "openai.completions", "openai.responses", "openai.embeddings", "tokenize", "detokenize"]
TOOL: Any = {
    "type": "function",
    "name": "look",
    "description": 'Looks up "things", e.g. élan or 漢字.',
    "parameters": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
}
TURNS: Any = [
    {"role": "developer", "content": "Keep it short."},
    {"role": "user", "content": [{"type": "input_text", "text": "What is a ledger? 漢字"}]},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"what": "a \\"quote\\""}'},
    {"type": "function_call_output", "call_id": "c1", "output": "found: é"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A book."}]},
    {"role": "user", "content": "And in three words?"},
]


@pytest.fixture(scope="module", params=["tiny", "smollm2"])
def real(request: pytest.FixtureRequest) -> RealEngine:
    engine: RealEngine = request.getfixturevalue(request.param)
    return engine


@pytest.fixture(scope="module")
def gateway(real: RealEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    model: Any = {"default_output_tokens": OUTPUT}
    plain: Any = {"apis": APIS, "models": {"real": model}}
    context: Any = {"context_tokens": 560 if real.spec.alias == "tiny" else 100}
    tight: Any = {"admission": {"min_output_tokens": 1, "enough_output_tokens": 1}}
    policies = {
        "free": plain,
        "counted": {**plain, "models": {"real": model | context}},
        "several": {**plain, "models": {"real": model | context}, "guard": {"allow": ["unreported_answers"]}},
        "output": {**plain, **tight, "run": {"output_tokens": CAP}},
        "input": {**plain, "run": {"input_tokens": 30}},
        "asking": {**plain, "agent": {"utility_calls": 3}, "run": {"requests": 1}},
    }
    models = {"real": real.spec.alias, "mock": real.spec.alias}
    with GatewayProcess(tmp_path_factory.mktemp("formats"), real.address, policies=policies, models=models, slots=real.spec.slots) as process:
        yield process


def rows_of(gateway: GatewayProcess, run: OpenedRun) -> list[Any]:
    with LedgerReader(gateway.ledger) as reader:
        return list(reader.calls(campaign=run.campaign, run=run.run))


def client_of(gateway: GatewayProcess, run: OpenedRun) -> Any:
    return openai_client(gateway.address, run.key)


def check_engine(rows: list[Any], spent: Any) -> None:
    assert {(row["status"], row["source"]) for row in rows} == {("settled", "reported")}
    assert spent.output_tokens == sum(row["output_tokens"] for row in rows)
    assert spent.prompt_tokens == sum(row["input_tokens"] - row["cached_tokens"] for row in rows)


def streamed(events: Any) -> Any:
    """The response that the terminal event holds."""
    *_, last = events
    return last.response


def finished(gateway: GatewayProcess, run: OpenedRun, **body: Any) -> dict[int, Any]:
    """Of a stream of completions: the usage that came with each choice's end. Read by lines: of several prompts this engine begins each with a null."""
    answer = httpx.post(
        f"{gateway.address}/v1/completions",
        json={"model": "real", "stream": True, **body},
        headers={"authorization": f"Bearer {run.key}"},
        timeout=60,
        trust_env=False,
    )
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    chunks = [chunk for line in lines[:-1] if (chunk := json.loads(line)) is not None]
    return {choice["index"]: chunk["usage"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]}


@pytest.mark.parametrize("policy", ["free", "counted"])
def test_responses_agree_with_the_engine_streaming_and_not(gateway: GatewayProcess, real: RealEngine, policy: str) -> None:
    run = gateway.opened(f"responses-{policy}", "r1", policy=policy)
    client, before, told = client_of(gateway, run), real.counters(), []
    bodies: list[Any] = [
        {"input": "Say hello."},
        {"input": TURNS, "instructions": "You keep a ledger."},
        {"input": TURNS, "tools": [TOOL], "max_output_tokens": 7, "store": False, "include": ["reasoning.encrypted_content"]},
    ]
    for body in bodies:
        whole = client.responses.create(model="real", **body)
        told.append(whole.usage)
        told.append(streamed(client.responses.create(model="real", stream=True, **body)).usage)
        assert whole.output_text
    rows = rows_of(gateway, run)
    check_engine(rows, real.counters() - before)
    asked = [(usage.input_tokens, usage.output_tokens, usage.input_tokens_details.cached_tokens) for usage in told]
    assert [(row["input_tokens"], row["output_tokens"], row["cached_tokens"]) for row in rows] == asked
    assert all(row["output_tokens"] <= OUTPUT for row in rows)
    reached = ["length" if row["output_tokens"] == row["reserved_output_tokens"] else "completed" for row in rows]
    assert [row["outcome"] for row in rows] == reached, "whatever status the engine gave"
    if policy == "counted":
        assert [row["reserved_input_tokens"] for row in rows[2:]] == [row["input_tokens"] for row in rows[2:]]
        assert "count_drift" not in str([row["flags"] for row in rows])


@pytest.mark.parametrize("policy", ["free", "counted"])
def test_completions_agree_with_the_engine_streaming_and_not(gateway: GatewayProcess, real: RealEngine, policy: str) -> None:
    run = gateway.opened(f"completions-{policy}", "r1", policy=policy)
    client, before, told = client_of(gateway, run), real.counters(), []
    cap: Any = {"max_tokens": 2_000 if policy == "counted" and real.spec.alias == "tiny" else OUTPUT}
    for prompt in ("Once upon a time, 漢字", [5, 6, 7, 8], "<|im_start|>user\nhi<|im_end|>"):
        told.append(client.completions.create(model="real", prompt=prompt, **cap).usage)
        told.append(Usage(**finished(gateway, run, prompt=prompt, **cap)[0]))
    rows = rows_of(gateway, run)
    check_engine(rows, real.counters() - before)
    assert [(row["input_tokens"], row["output_tokens"]) for row in rows] == [(usage.prompt_tokens, usage.completion_tokens) for usage in told]
    assert "count_drift" not in str([row["flags"] for row in rows])
    assert all(row["reserved_input_tokens"] >= row["input_tokens"] for row in rows)


def test_several_prompts_and_choices_in_a_stream_add_up(gateway: GatewayProcess, real: RealEngine) -> None:
    run = gateway.opened("several", "r1", policy="free")
    before = real.counters()
    prompts: Any = ["Once upon", "The sky is very blue today", [5, 6, 7]]
    by_prompt = finished(gateway, run, prompt=prompts, max_tokens=4)
    by_choice = finished(gateway, run, prompt="Once upon", n=2, max_tokens=4)
    rows = rows_of(gateway, run)
    spent = real.counters() - before
    assert {row["source"] for row in rows} == {"reported"}
    assert rows[0]["input_tokens"] == sum(usage["prompt_tokens"] for usage in by_prompt.values())
    assert rows[1]["input_tokens"] == by_choice[0]["prompt_tokens"] == by_choice[1]["prompt_tokens"]
    assert [row["output_tokens"] for row in rows] == [sum(usage["completion_tokens"] for usage in found.values()) for found in (by_prompt, by_choice)]
    assert sum(row["output_tokens"] for row in rows) == spent.output_tokens
    assert [row["reserved_output_tokens"] for row in rows] == [12, 8]


def test_several_answers_in_one_piece_are_refused_where_the_engine_reports_but_the_first(gateway: GatewayProcess, real: RealEngine) -> None:
    run, before = gateway.opened("in-one-piece", "r1", policy="counted"), real.counters()
    client = client_of(gateway, run)
    calls: Any = [
        lambda: client.completions.create(model="real", prompt=["Once upon", "The sky is very blue today"], max_tokens=4),
        lambda: client.completions.create(model="real", prompt="Once upon", n=2, max_tokens=4),
        lambda: client.chat.completions.create(model="real", messages=[{"role": "user", "content": "hi"}], n=2, max_tokens=4),
    ]
    for field, call in zip(("prompt", "n", "n"), calls, strict=True):
        with pytest.raises(openai.BadRequestError, match="reports the first alone: ask for a stream") as refused:
            call()
        assert (refused.value.code, refused.value.param) == ("not_allowed", field)
        assert 'guard.allow = ["unreported_answers"]' in refused.value.message
    assert rows_of(gateway, run) == []
    assert (real.counters() - before).output_tokens == 0


def test_several_answers_in_one_piece_are_counted_by_their_text_where_the_policy_allows_them(gateway: GatewayProcess, real: RealEngine) -> None:
    run = gateway.opened("allowed", "r1", policy="several")
    client, before = client_of(gateway, run), real.counters()
    client.completions.create(model="real", prompt=["Once upon", "The sky is very blue today"], max_tokens=4)
    [row] = rows_of(gateway, run)
    spent = real.counters() - before
    assert row["source"] in ("counted", "running")
    assert row["charged_input_tokens"] >= spent.prompt_tokens
    assert spent.output_tokens <= 8 == row["reserved_output_tokens"]
    assert row["output_tokens"] >= 1, "a lower bound; the tiny model's bytes are no text, and count for more"


def test_several_choices_of_chat_in_a_stream_add_up(gateway: GatewayProcess, real: RealEngine) -> None:
    run, before = gateway.opened("choices", "r1", policy="counted"), real.counters()
    for asked in (False, True):
        more: Any = {"stream_options": {"include_usage": True}} if asked else {}
        client = client_of(gateway, run)
        list(client.chat.completions.create(model="real", messages=[{"role": "user", "content": "hi"}], n=2, max_tokens=4, stream=True, **more))
    rows, spent = rows_of(gateway, run), real.counters() - before
    assert {(row["source"], row["reserved_output_tokens"]) for row in rows} == {("reported", 8)}
    assert sum(row["output_tokens"] for row in rows) == spent.output_tokens


def test_a_run_is_spent_to_the_token_and_then_refused_in_the_formats_own_way(gateway: GatewayProcess, real: RealEngine) -> None:
    before, outputs = real.counters(), 0
    for api in ("responses", "completions"):
        run = gateway.opened("spent", api, policy="output")
        client = client_of(gateway, run)
        refusal: type[openai.APIStatusError] = openai.BadRequestError if api == "responses" else openai.NotFoundError
        with pytest.raises(refusal) as refused:
            for _ in range(CAP):
                if api == "responses":
                    streamed(client.responses.create(model="real", input="Count to a hundred.", max_output_tokens=OUTPUT, stream=True))
                else:
                    client.completions.create(model="real", prompt="One, two, three,", max_tokens=OUTPUT)
        assert refused.value.response.headers["x-should-retry"] == "false"
        assert refused.value.code == "run_budget_reached"
        rows = rows_of(gateway, run)
        assert sum(row["output_tokens"] for row in rows) == CAP
        outputs += CAP
    assert (real.counters() - before).output_tokens == outputs


@pytest.mark.parametrize("alias", ["n_predict", "max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "num_predict"])
def test_no_alias_of_the_cap_gets_past_the_ceiling(gateway: GatewayProcess, alias: str) -> None:
    run = gateway.opened("aliases", alias, policy="output")
    client = client_of(gateway, run)
    client.responses.create(model="real", input="Count to a hundred.", max_output_tokens=500, extra_body={alias: 500})
    [row] = rows_of(gateway, run)
    assert row["output_tokens"] <= CAP and row["reserved_output_tokens"] == CAP


def test_an_input_cap_refuses_by_the_engines_own_count(gateway: GatewayProcess, real: RealEngine) -> None:
    run = gateway.opened("input", "r1", policy="input")
    client, before = client_of(gateway, run), real.counters()
    client.completions.create(model="real", prompt=list(range(5, 30)), max_tokens=2)
    with pytest.raises(openai.NotFoundError) as refused:
        client.completions.create(model="real", prompt=[5, 6, 7, 8, 9, 10], max_tokens=2)
    assert refused.value.response.headers["x-gateway-limit"] == "run.input_tokens"
    assert refused.value.response.headers["x-gateway-asked"] == "6"
    assert (real.counters() - before).prompt_tokens <= 25


def test_an_engine_without_embeddings_says_so_and_nothing_is_generated(gateway: GatewayProcess, real: RealEngine) -> None:
    run = gateway.opened("embeddings", "r1", policy="free")
    before = real.counters()
    with pytest.raises(openai.APIStatusError) as refused:
        client_of(gateway, run).embeddings.create(model="real", input=["hello", "there"], encoding_format="float")
    assert refused.value.status_code == 501
    [row] = rows_of(gateway, run)
    assert (row["outcome"], row["reserved_output_tokens"], row["charged_output_tokens"]) == ("engine_error", 0, 0)
    assert (real.counters() - before).output_tokens == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("previous_response_id", "resp_1"),
        ("conversation", "conv_1"),
        ("store", True),
        ("background", True),
        ("prompt", {"id": "pmpt_1"}),
        ("tools", [{"type": "web_search"}]),
        ("tools", [{"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1/"}]),
        ("input", [{"type": "item_reference", "id": "msg_1"}]),
        ("input", [{"role": "user", "content": [{"type": "input_image", "image_url": "http://127.0.0.1/a.png"}]}]),
        ("input", [{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]),
    ],
)
def test_what_would_make_the_engine_act_never_reaches_it(gateway: GatewayProcess, real: RealEngine, field: str, value: object) -> None:
    run, before = gateway.opened("guard", None, policy="free"), real.counters()
    with pytest.raises(openai.APIStatusError) as refused:
        client_of(gateway, run).responses.create(model="real", **{"input": "hi", field: value})
    assert (refused.value.status_code, refused.value.code) == (400, "not_allowed")
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert rows_of(gateway, run) == []
    assert (real.counters() - before).output_tokens == 0


def ask(gateway: GatewayProcess, run: OpenedRun, path: str, **body: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {run.key}"}
    return httpx.post(f"{gateway.address}{path}", json=body, headers=headers, timeout=60, trust_env=False)


def test_the_tokenizer_can_be_asked_for_nothing_and_not_without_end(gateway: GatewayProcess, real: RealEngine) -> None:
    run, before = gateway.opened("asking", "r1", policy="asking"), real.counters()
    tokens = ask(gateway, run, "/tokenize", content="Once upon a time").json()["tokens"]
    assert tokens and all(isinstance(token, int) for token in tokens)
    assert ask(gateway, run, "/detokenize", model="real", tokens=tokens).json() == {"content": "Once upon a time"}
    guarded = ask(gateway, run, "/tokenize", content="a", chat_template="x")
    assert (guarded.status_code, guarded.json()["error"]["code"]) == (400, "not_allowed")
    assert ask(gateway, run, "/tokenize", model="other", content="a").status_code == 404
    assert ask(gateway, run, "/tokenize", content="a").status_code == 200, "what was refused counts for nothing"
    refused = ask(gateway, run, "/tokenize", content="a")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "run_budget_reached")
    assert (refused.headers["x-gateway-limit"], refused.headers["x-should-retry"]) == ("agent.utility_calls", "false")
    assert rows_of(gateway, run) == []
    spent = real.counters() - before
    assert (spent.prompt_tokens, spent.output_tokens) == (0, 0)
    assert client_of(gateway, run).completions.create(model="real", prompt="a", max_tokens=1).usage, "calls are another matter"


def test_the_ledger_adds_up(gateway: GatewayProcess) -> None:
    with LedgerReader(gateway.ledger) as reader:
        verification = reader.verify()
    assert verification.fits, verification
