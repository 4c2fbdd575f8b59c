"""Ceilings of output, whatever a body says and whatever an engine does: what was asked for and made is read from the engine's own log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from gateway.ledger.reading import LedgerReader
from gateway.mock_engine.tokens import count
from gateway.tokenizers.bpe import BpeTokenizer
from tests.support import record, sse
from tests.support.control import OpenedRun
from tests.support.gateway_process import POLICY, GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import CHAT, RawAnswer, RawClient, chat_once
from tests.support.sdk import openai_client
from tests.support.toml import Tables, merged
from tests.support.waiting import eventually

CEILING = 12
ONE_BY_ONE: Tables = {"admission": {"min_output_tokens": 1, "enough_output_tokens": 1}}
POLICIES: dict[str, Tables] = {
    "call": {"call": {"output_tokens": CEILING}},
    "run": {"run": {"output_tokens": CEILING}, **ONE_BY_ONE},
    "day": {"campaign": {"day": {"output_tokens": CEILING, "timezone": "UTC"}}, **ONE_BY_ONE},
    "refusing": {"run": {"output_tokens": CEILING}, "admission": {"over": "refuse"}, "guard": {"allow": ["unreported_answers"]}},
    "default": {"models": {"mock": {"default_output_tokens": 7}}, "call": {"output_tokens": 512}},
    "no-default": {"call": {"output_tokens": 512}},
    "hundred": {"run": {"output_tokens": 100}, **ONE_BY_ONE},
    "open": {},
    "tiktoken": {"models": {"mock": {"counter": "tiktoken:o200k_base"}}},
    "bytes": {"models": {"mock": {"counter": "bytes"}}},
}
CAPS = {
    "max_completion_tokens", "max_tokens", "n_predict", "max_output_tokens", "max_new_tokens", "max_length", "max_gen_len", "num_predict",
    "max_tokens_to_sample",
}  # fmt: skip


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    whole = {name: merged(POLICY, tables) for name, tables in POLICIES.items()}
    whole["no-default"]["models"] = {"mock": {}}
    with GatewayProcess(tmp_path_factory.mktemp("caps"), mock.url, policies=whole, slots=16) as process:
        yield process
        eventually(lambda: record.reserved(process) == 0, "nothing is held")
        assert process.stop() == 0
        assert record.fits(process)


@pytest.fixture(autouse=True)
def _plain(mock: MockProcess) -> None:
    mock.script({})
    mock.clear()


def ask(gateway: GatewayProcess, run: OpenedRun, fields: str) -> RawAnswer:
    """`fields` is JSON text as it goes out: twice the same name, numbers past all measure."""
    body = '{"model":"mock","messages":[{"role":"user","content":"hello there"}]' + (f",{fields}" if fields else "") + "}"
    with RawClient(gateway.port) as client:
        client.request("POST", CHAT, headers={"Authorization": f"Bearer {run.key}", "Content-Type": "application/json"}, body=body.encode())
        return client.answer()


def fresh(gateway: GatewayProcess, policy: str) -> OpenedRun:
    """A run whose budget nobody else has touched."""
    fresh.number = getattr(fresh, "number", 0) + 1  # type: ignore[attr-defined]
    return gateway.opened(f"{policy}-{fresh.number}", "r1", policy=policy)  # type: ignore[attr-defined]


def rows(gateway: GatewayProcess, run: OpenedRun) -> list[dict[str, Any]]:
    with LedgerReader(gateway.ledger) as reader:
        return list(reader.calls(campaign=run.campaign))


# -- what a body says


HOSTILE = [
    '"max_tokens":5000',
    '"max_completion_tokens":5000',
    '"n_predict":5000',
    '"num_predict":5000',
    '"max_tokens":1,"max_completion_tokens":5000,"n_predict":-1',
    '"max_tokens":3,"max_tokens":5000',
    '"max_tokens":5000,"max_tokens":3',
    '"max_tokens":99999999999999999999999999999',
    '"max_tokens":9223372036854775808',
    '"max_tokens":1e9',
    '"max_tokens":-1',
    '"max_tokens":-2',
    '"num_predict":-2',
    '"n_predict":-1',
    '"max_tokens":-9223372036854775808',
    '"max_tokens":"5000"',
    '"max_tokens":" 5000 "',
    '"max_tokens":null',
    '"max_tokens":true',
    '"max_tokens":[5000]',
    '"max_tokens":{"$gt":0}',
    '"max_tokens":0',
    '"Max_Tokens":5000',
    '"max_tokens":3,"MAX_TOKENS":5000',
    '"max_to\\u212aens":5000',
    '"max\\u005ftokens":5000',
    '"N":50',
    '"n":3,"max_tokens":500',
    '"n":12',
    '"n":-1',
    '"n":"50"',
    '"n":0',
    '"n":2.0',
    '"n":3,"n":1,"max_tokens":500',
    '"best_of":50',
    '"best_of":50,"n":2',
    '"n_cmpl":50',
    '"min_tokens":5000',
    '"min_tokens":5000,"ignore_eos":true',
    '"min_tokens":"5000"',
    '"ignore_eos":true',
    '"use_beam_search":true,"num_beams":50',
    '"thinking_budget_tokens":5000',
    '"thinking_budget":5000,"reasoning_budget":5000',
    '"thinking_budget_tokens":-1',
    '"thinking":{"type":"enabled","budget_tokens":5000}',
    '"reasoning":{"max_tokens":5000}',
    '"chat_template_kwargs":{"thinking_budget":5000}',
    '"max_tokens":5000,"t_max_predict_ms":0',
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("policy", ["call", "run", "day"])
def test_no_body_gets_past_a_limit_on_output(gateway: GatewayProcess, mock: MockProcess, policy: str, stream: bool) -> None:
    for fields in HOSTILE:
        mock.clear()
        run = fresh(gateway, policy)
        answer = ask(gateway, run, fields + (',"stream":true' if stream else ""))
        calls = mock.calls()
        assert sum(call["output_tokens"] for call in calls) <= CEILING, fields
        if not calls:
            assert answer.status in (400, 404), (fields, answer)
            continue
        assert answer.status == 200, (fields, answer)
        assert_bounded(json.loads(calls[0]["body"]), fields)
        [row] = rows(gateway, run)
        assert row["charged_output_tokens"] == calls[0]["output_tokens"], fields


def assert_bounded(body: dict[str, Any], fields: str) -> None:
    """One cap, under the engine's name, and nothing that an engine could take for another, however it reads names."""
    names = {name.casefold() for name in body}
    assert len(names) == len(body), fields
    assert {name for name in body if name.casefold() in CAPS} == {"max_tokens"}, fields
    choices = body.get("n", 1)
    assert 0 <= body["max_tokens"] * choices <= CEILING, fields
    assert not names & {"best_of", "n_cmpl", "use_beam_search"}, fields
    lowered = [body.get(name, 0) for name in ("min_tokens", "thinking_budget_tokens", "thinking_budget", "reasoning_budget")]
    lowered += [body.get(outer, {}).get(inner, 0) for outer, inner in NESTED]
    assert max(lowered) <= body["max_tokens"], fields


NESTED = (("thinking", "budget_tokens"), ("reasoning", "max_tokens"), ("chat_template_kwargs", "thinking_budget"))


@pytest.mark.parametrize(
    ("fields", "goes"), [('"max_tokens":12', True), ('"max_tokens":13', False), ('"n":3,"max_tokens":4', True), ('"n":3,"max_tokens":5', False)]
)
def test_where_the_policy_refuses_instead_of_lowering_just_the_ceiling_goes(gateway: GatewayProcess, mock: MockProcess, fields: str, goes: bool) -> None:
    answer = ask(gateway, fresh(gateway, "refusing"), fields)
    assert (answer.status, len(mock.calls())) == ((200, 1) if goes else (404, 0)), answer.body


def test_a_call_that_names_no_ceiling_is_given_the_policys(gateway: GatewayProcess, mock: MockProcess) -> None:
    for policy, expected in (("default", 7), ("no-default", 512)):
        assert ask(gateway, fresh(gateway, policy), "").status == 200
        assert json.loads(mock.calls()[-1]["body"])["max_tokens"] == expected


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_model_that_only_thinks_is_stopped_at_the_ceiling_and_all_of_it_counts(gateway: GatewayProcess, mock: MockProcess, stream: bool) -> None:
    mock.script({"output_tokens": 5_000, "reasoning_tokens": 5_000})
    run = fresh(gateway, "no-default")
    answer = chat_once(gateway.port, run.key, stream=stream)
    assert answer.status == 200 and mock.calls()[-1]["output_tokens"] == 512
    [row] = rows(gateway, run)
    assert (row["outcome"], row["output_tokens"], row["charged_output_tokens"]) == ("length", 512, 512)


# -- what an engine does


ARGUMENTS = json.dumps({"text": "word " * 600})
WRITE = {"name": "write_file", "arguments": ARGUMENTS}
GOES_ON: dict[str, Tables] = {
    "text": {"output_tokens": 1_000},
    "reasoning": {"output_tokens": 1_000, "reasoning_tokens": 1_000},
    "tool call": {"output_tokens": 2 * (1 + count(ARGUMENTS)), "tool_calls": [WRITE, WRITE]},
}
DELTAS = {"text": "content", "reasoning": "reasoning_content", "tool call": "tool_calls"}


@pytest.mark.parametrize("usage", ["cumulative", "auto"], ids=["by its running total", "by our count"])
@pytest.mark.parametrize("what", GOES_ON)
@pytest.mark.parametrize("asked", [True, False], ids=["usage asked", "usage not asked"])
def test_a_stream_past_its_ceiling_is_cut_as_a_length_end(gateway: GatewayProcess, mock: MockProcess, what: str, usage: str, asked: bool) -> None:
    mock.script({**GOES_ON[what], "ignore_cap": True, "usage": usage, "gap_ms": 150 if what == "tool call" else 5})
    run = fresh(gateway, "hundred")
    options = {"include_usage": True} if asked else None
    answer = chat_once(gateway.port, run.key, stream=True, max_tokens=5_000, stream_options=options)
    assert (answer.status, answer.complete, sse.unfinished(answer.body)) == (200, True, b"")
    assert answer.events[-1].done and sse.finish_reason(answer.body) == "length" and sse.error(answer.body) is None
    deltas = [choice["delta"] for chunk in sse.chunks(answer.body) for choice in chunk["choices"] if choice["delta"]]
    assert DELTAS[what] in deltas[-1], "it was cut amid this"
    eventually(lambda: mock.calls()[0]["left"], "the engine is left")
    made = mock.calls()[0]["output_tokens"]
    [row] = rows(gateway, run)
    assert row["outcome"] == "cap_cut" and row["source"] in ("running", "counted")
    if what != "tool call":
        assert row["output_tokens"] == 101, "cut at the first event past its ceiling"
        assert made < 200
    assert row["charged_output_tokens"] == row["output_tokens"] > 100
    assert row["flags"].split() == ["overshoot", "cap_ignored"][: 2 if row["source"] == "running" else 1], "only the engine's own word says so"
    if asked:
        told = sse.usage(answer.body)
        assert (told["completion_tokens"], told["prompt_tokens"]) == (row["output_tokens"], row["input_tokens"])
    else:
        assert not [chunk for chunk in sse.chunks(answer.body) if not chunk["choices"]], "nobody asked for that event"
    refused = chat_once(gateway.port, run.key)
    assert (refused.status, refused.headers["x-gateway-settled"]) == (404, str(row["output_tokens"])), "what was made is spent, above the ceiling too"


@pytest.mark.parametrize("what", GOES_ON)
def test_an_answer_in_one_piece_past_its_ceiling_is_charged_as_reported_and_marked(gateway: GatewayProcess, mock: MockProcess, what: str) -> None:
    mock.script({**GOES_ON[what], "ignore_cap": True})
    run = fresh(gateway, "hundred")
    answer = chat_once(gateway.port, run.key, max_tokens=5_000)
    assert answer.status == 200 and answer.complete
    reported = answer.json()["usage"]["completion_tokens"]
    [row] = rows(gateway, run)
    assert (row["source"], row["outcome"], row["output_tokens"], row["charged_output_tokens"]) == ("reported", "length", reported, reported)
    assert reported > 100 and row["flags"].split() == ["overshoot", "cap_ignored"]
    assert gateway.control.close_run(run)["receipt"]["totals"]["overshoot"] == {"calls": 1, "output_tokens": reported - 100}


def test_an_engine_that_ignores_ceilings_is_marked_as_such(gateway: GatewayProcess, mock: MockProcess) -> None:
    mock.script({"output_tokens": 300, "ignore_cap": True})
    assert chat_once(gateway.port, fresh(gateway, "hundred").key, max_tokens=50).status == 200
    [upstream] = gateway.control.get("/v1/status")["upstreams"]
    assert upstream["cap_ignored"] is True
    assert record.entries(gateway, "event", named="cap_ignored") == 1, "once a process and engine"


@pytest.mark.parametrize("gap_ms", [0, 10], ids=["many in a piece", "one by one"])
@pytest.mark.parametrize("tokens", [2, 7, 25, 500])
def test_an_engine_that_sends_many_tokens_an_event_is_cut_at_the_first_past_its_ceiling(
    gateway: GatewayProcess, mock: MockProcess, tokens: int, gap_ms: int
) -> None:
    mock.script({"output_tokens": 2_000, "ignore_cap": True, "chunk_tokens": tokens, "gap_ms": gap_ms})
    run = fresh(gateway, "hundred")
    answer = chat_once(gateway.port, run.key, stream=True, max_tokens=100)
    assert sse.finish_reason(answer.body) == "length"
    [row] = rows(gateway, run)
    assert (row["outcome"], row["source"], row["counted_by"]) == ("cap_cut", "counted", "engine")
    passing = (100 // tokens + 1) * tokens
    assert count(text_of(answer)) == row["output_tokens"] == row["charged_output_tokens"] == passing, "what came behind that event never went out"


@pytest.mark.parametrize("counter", ["tiktoken:o200k_base", "bytes"])
def test_the_same_by_a_vocabulary_that_lies_here(gateway: GatewayProcess, mock: MockProcess, counter: str) -> None:
    """Without a tokenizer of its own a model is counted by o200k: an estimate, and `counted_by` says so."""
    mock.script({"output_tokens": 2_000, "ignore_cap": True, "chunk_tokens": 30, "gap_ms": 1, "usage": "none"})
    run = fresh(gateway, counter.partition(":")[0])
    answer = chat_once(gateway.port, run.key, stream=True, max_tokens=100)
    deltas = [choice["delta"].get("content") or "" for chunk in sse.chunks(answer.body) for choice in chunk["choices"]]
    said = [text for text in deltas if text]
    o200k = BpeTokenizer("o200k_base")
    assert o200k.count_now(["".join(said[:-1])]) <= 100 < o200k.count_now(["".join(said)])
    [row] = rows(gateway, run)
    assert (row["outcome"], row["source"], row["counted_by"]) == ("cap_cut", "counted", "tiktoken:o200k_base")
    assert row["charged_output_tokens"] == o200k.count_now(["".join(said)])


def text_of(answer: RawAnswer) -> str:
    return "".join(choice["delta"].get("content") or "" for chunk in sse.chunks(answer.body) for choice in chunk["choices"])


def test_the_sdk_reads_a_cut_at_the_ceiling_as_a_length_end(gateway: GatewayProcess, mock: MockProcess) -> None:
    mock.script({"output_tokens": 1_000, "ignore_cap": True, "gap_ms": 2})
    client = openai_client(gateway.address, fresh(gateway, "hundred").key)
    chunks = list(
        client.chat.completions.create(
            model="mock", stream=True, stream_options={"include_usage": True}, max_tokens=500, messages=[{"role": "user", "content": "hello there"}]
        )
    )
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason] == ["length"]
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 101
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="mock", messages=[{"role": "user", "content": "hello there"}])
