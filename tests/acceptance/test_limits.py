"""Each limit in each scope, as a black box: a ceiling of N lets N calls reach the engine, and the next is refused by name, with its numbers.

What reached the engine is read from the engine's own log; with a ceiling of N - 1 the same test counts one call less.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gateway.ledger.reading import LedgerReader
from tests.support.control import ControlAnswered, OpenedRun
from tests.support.gateway_process import POLICY, GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, chat_once
from tests.support.sdk import async_openai_client
from tests.support.toml import Tables, merged
from tests.support.waiting import eventually

OUTPUT = 10
LANES: Tables = {"foreground": {}, "background": {}}
SCOPES = {
    "run": ("run",),
    "run.background": ("run", "background"),
    'run.model."mock"': ("run", "model", "mock"),
    "campaign": ("campaign",),
    "campaign.background": ("campaign", "background"),
}
QUANTITIES = ("requests", "input_tokens", "output_tokens", "total_tokens")
CEILINGS = (1, 3)


def policy_name(quantity: str, scope: str, calls: int) -> str:
    return f"{quantity}-{scope.replace('.', '-').replace(chr(34), '')}-{calls}".replace("_", "-")


def limited(scope: str, quantity: str, ceiling: int) -> Tables:
    limits: Any = {quantity: ceiling}
    for part in reversed(SCOPES[scope]):
        limits = {part: limits}
    policy: Tables = {"lanes": LANES, "admission": {"queue_seconds": 2}, **limits}
    return policy


def ceiling_of(quantity: str, calls: int, prompt: int) -> int:
    return calls * {"requests": 1, "input_tokens": prompt, "output_tokens": OUTPUT, "total_tokens": prompt + OUTPUT}[quantity]


@pytest.fixture(scope="module")
def prompt_tokens() -> int:
    """Of the one short message that every test sends, as the scripted engine's tokenizer counts it."""
    from gateway.mock_engine.tokens import count, render

    return count(render({"messages": [{"role": "user", "content": "hello there"}]}))


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess, prompt_tokens: int) -> Iterator[GatewayProcess]:
    policies = {
        policy_name(quantity, scope, calls): limited(scope, quantity, ceiling_of(quantity, calls, prompt_tokens))
        for quantity in QUANTITIES
        for scope in SCOPES
        for calls in CEILINGS
    }
    policies |= {f"concurrent-{scope.replace('.', '-').replace(chr(34), '')}": limited(scope, "concurrent", 2) for scope in SCOPES}
    policies |= {
        "seven": {"run": {"requests": 7}},
        "runs": {"campaign": {"runs": 3}},
        "output": {"call": {"output_tokens": 64}, "run": {"output_tokens": 333}, "admission": {"min_output_tokens": 1, "enough_output_tokens": 1}},
        "prompt": {"call": {"prompt_tokens": 40, "output_tokens": 16}},
        "percall": {"call": {"output_tokens": 12}},
    }
    folder: Path = tmp_path_factory.mktemp("limits")
    whole = {name: merged(POLICY, tables) for name, tables in policies.items()}
    with GatewayProcess(folder, mock.url, policies=whole, slots=64) as process:
        yield process


def sent(mock: MockProcess, gateway: GatewayProcess, run: OpenedRun) -> int:
    """How many calls of this run the engine saw: its log holds our call ids, and the answers bore them."""
    return sum(1 for call in mock.calls() if call["request_id"] in IDS[run.campaign])


IDS: dict[str, set[str]] = {}


def call(gateway: GatewayProcess, run: OpenedRun, key: str, **body: object) -> RawAnswer:
    answer = chat_once(gateway.port, key, **{"max_tokens": OUTPUT, **body})
    IDS.setdefault(run.campaign, set()).add(answer.headers["x-request-id"])
    return answer


@pytest.mark.parametrize("calls", CEILINGS)
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_a_ceiling_lets_just_so_many_calls_through(
    gateway: GatewayProcess, mock: MockProcess, prompt_tokens: int, quantity: str, scope: str, calls: int
) -> None:
    name = policy_name(quantity, scope, calls)
    run = gateway.opened(name, "r1", policy=name)
    key = run.keys["background"]
    answers = [call(gateway, run, key) for _ in range(calls + 1)]
    assert [answer.status for answer in answers] == [200] * calls + [404]
    assert sent(mock, gateway, run) == calls
    ceiling = ceiling_of(quantity, calls, prompt_tokens)
    refused = answers[-1].headers
    assert refused["x-gateway-limit"] == f"{scope}.{quantity}"
    assert (refused["x-gateway-ceiling"], refused["x-gateway-settled"], refused["x-gateway-reserved"]) == (str(ceiling), str(ceiling), "0")
    asked = int(refused["x-gateway-asked"])
    if quantity in ("requests", "output_tokens"):
        assert asked == ceiling // calls
    else:
        assert asked >= ceiling // calls  # nothing is left, whatever the prompt: it is not even counted, and the figure is its bound
    assert refused["x-should-retry"] == "false"
    assert "retry-after" not in refused
    assert answers[-1].json()["error"]["code"] == "run_budget_reached"


@pytest.mark.parametrize("scope", ["run.background", "campaign.background"])
def test_a_lane_that_is_spent_does_not_stop_the_others(gateway: GatewayProcess, mock: MockProcess, scope: str) -> None:
    name = policy_name("requests", scope, 1)
    run = gateway.opened(f"{name}-others", "r1", policy=name)
    assert [call(gateway, run, run.keys["background"]).status for _ in range(2)] == [200, 404]
    assert [call(gateway, run, run.keys["foreground"]).status for _ in range(3)] == [200] * 3


def test_a_campaigns_cap_is_shared_by_its_runs_and_a_runs_own_is_not(gateway: GatewayProcess, mock: MockProcess) -> None:
    shared = policy_name("requests", "campaign", 3)
    runs = [gateway.opened("shared", f"r{number}", policy=shared) for number in range(4)]
    assert [call(gateway, run, run.keys["background"]).status for run in runs] == [200, 200, 200, 404]
    own = policy_name("requests", "run", 1)
    runs = [gateway.opened("own", f"r{number}", policy=own) for number in range(4)]
    assert [call(gateway, run, run.keys["background"]).status for run in runs] == [200] * 4


@pytest.mark.parametrize("scope", SCOPES)
def test_no_more_than_so_many_calls_are_at_work_at_once(gateway: GatewayProcess, mock: MockProcess, scope: str) -> None:
    mock.script({"gap_ms": 40, "output_tokens": OUTPUT})
    run = gateway.opened(f"at-once-{scope.replace('.', '-').replace(chr(34), '')}", "r1", policy=f"concurrent-{scope.replace('.', '-').replace(chr(34), '')}")
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: call(gateway, run, run.keys["background"], stream=True), range(6)))
    assert [answer.status for answer in answers] == [200] * 6  # the rest waited its turn
    spans = [(record["arrival"]["monotonic_ns"], record["ended"]["monotonic_ns"]) for record in mock.calls() if record["request_id"] in IDS[run.campaign]]
    assert len(spans) == 6
    assert most_at_once(spans) == 2
    mock.script({})


def most_at_once(spans: list[tuple[int, int]]) -> int:
    changes = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans], key=lambda change: (change[0], change[1]))
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def test_a_hundred_calls_at_once_against_a_cap_of_seven_requests(gateway: GatewayProcess, mock: MockProcess) -> None:
    mock.script({"gap_ms": 5, "output_tokens": 4})
    run = gateway.opened("seven", "r1", policy="seven")
    barrier = threading.Barrier(100)

    def one(_: int) -> RawAnswer:
        barrier.wait()
        return call(gateway, run, run.key)

    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(one, range(100)))
    assert Counter(answer.status for answer in answers) == {200: 7, 404: 93}
    assert sent(mock, gateway, run) == 7
    mock.script({})


def test_the_first_calls_of_a_fresh_run_cannot_race_past_its_cap(gateway: GatewayProcess, mock: MockProcess) -> None:
    name = policy_name("requests", "run", 1)
    for attempt in range(5):
        run = gateway.opened("fresh", f"r{attempt}", policy=name)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _, run=run: call(gateway, run, run.keys["background"]), range(8)))
        assert Counter(answer.status for answer in answers) == {200: 1, 404: 7}


async def test_concurrent_streams_never_make_one_output_token_too_many(gateway: GatewayProcess, mock: MockProcess) -> None:
    """An OpenAI client, forty streams at once, each asking for more than is left for all of them."""
    mock.script({"gap_ms": 1})
    run = gateway.opened("output", "r1", policy="output")
    client = async_openai_client(gateway.address, run.key)

    async def stream() -> str:
        try:
            answer = await client.chat.completions.with_raw_response.create(
                model="mock", max_tokens=50, stream=True, messages=[{"role": "user", "content": "hello there"}]
            )
        except Exception as error:
            return type(error).__name__
        IDS.setdefault(run.campaign, set()).add(answer.headers["x-request-id"])
        async for _ in answer.parse():
            pass
        return "answered"

    results = Counter(await asyncio.gather(*(stream() for _ in range(40))))
    assert results["NotFoundError"] > 0
    made = sum(record["output_tokens"] for record in mock.calls() if record["request_id"] in IDS[run.campaign])
    assert made == 333  # the last ones were clamped: all of the budget is used, and not a token more
    assert results["answered"] >= 7
    mock.script({})


def test_an_opened_run_counts_whatever_became_of_it(gateway: GatewayProcess, mock: MockProcess) -> None:
    for number in range(3):
        run = gateway.opened("counted", f"r{number}", policy="runs")
        gateway.control.close_run(run)
    with pytest.raises(ControlAnswered) as refused:
        gateway.control.open_run("counted", "r3")
    assert refused.value.code == "run_budget_reached"
    assert "campaign.runs is 3" in str(refused.value.body)


@pytest.mark.parametrize(
    "caps",
    [
        {"max_tokens": 500},
        {"max_completion_tokens": 500},
        {"n_predict": 500},
        {"n_predict": 500, "max_tokens": 5_000, "max_completion_tokens": 50_000},
        {"max_output_tokens": 99},
        {},
    ],
    ids=lambda caps: ",".join(caps) or "none",
)
@pytest.mark.parametrize("stream", [False, True])
def test_whatever_the_body_says_the_engine_is_asked_for_no_more_than_the_calls_cap(
    gateway: GatewayProcess, mock: MockProcess, caps: dict[str, int], stream: bool
) -> None:
    run = gateway.opened("percall", policy="percall")
    answer = chat_once(gateway.port, run.key, stream=stream, **caps)
    assert answer.status == 200
    [record] = [record for record in mock.calls() if record["request_id"] == answer.headers["x-request-id"]]
    body = json.loads(record["body"])
    assert body["max_tokens"] == 12
    assert not {"n_predict", "max_completion_tokens", "max_output_tokens"} & set(body)
    assert record["output_tokens"] == 12


def test_a_cap_holds_over_all_choices(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("percall", policy="percall")
    answer = chat_once(gateway.port, run.key, stream=True, n=3, max_tokens=500)
    assert answer.status == 200
    [record] = [record for record in mock.calls() if record["request_id"] == answer.headers["x-request-id"]]
    assert json.loads(record["body"])["max_tokens"] == 4
    assert record["output_tokens"] == 12


def test_more_choices_than_the_cap_has_tokens_are_refused(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("percall", policy="percall")
    answer = chat_once(gateway.port, run.key, stream=True, n=13)
    assert (answer.status, answer.headers["x-gateway-limit"], answer.headers["x-gateway-ceiling"]) == (404, "call.output_tokens", "12")
    assert not [record for record in mock.calls() if record["request_id"] == answer.headers["x-request-id"]]


@pytest.mark.parametrize(
    "caps", [{"max_tokens": -1}, {"max_tokens": "9"}, {"max_tokens": 1.5}, {"n_predict": -1}, {"n": 0}, {"n": 1_000}, {"max_tokens": [9]}], ids=str
)
def test_a_hostile_cap_is_refused_or_harmless(gateway: GatewayProcess, mock: MockProcess, caps: dict[str, object]) -> None:
    run = gateway.opened("percall", policy="percall")
    answer = chat_once(gateway.port, run.key, **caps)
    seen = [record for record in mock.calls() if record["request_id"] == answer.headers["x-request-id"]]
    if answer.status == 400:
        assert answer.json()["error"]["code"] in ("body_invalid", "not_allowed")
        assert not seen
    else:
        assert answer.status == 200
        body = json.loads(seen[0]["body"])
        assert body["max_tokens"] * body.get("n", 1) <= 12


def test_a_prompt_above_the_calls_cap_is_refused_by_its_exact_count(gateway: GatewayProcess, mock: MockProcess, prompt_tokens: int) -> None:
    from gateway.mock_engine.tokens import count, render

    run = gateway.opened("prompt", policy="prompt")
    fits, above = "a " * 1, "hello there " * 60
    assert chat_once(gateway.port, run.key, messages=[{"role": "user", "content": fits}]).status == 200
    refused = chat_once(gateway.port, run.key, messages=[{"role": "user", "content": above}])
    assert (refused.status, refused.json()["error"]["code"]) == (404, "prompt_above_cap")
    assert refused.headers["x-gateway-limit"] == "call.prompt_tokens"
    assert refused.headers["x-gateway-asked"] == str(count(render({"messages": [{"role": "user", "content": above}]})))


def test_refusals_are_on_record_singly_and_then_summed(gateway: GatewayProcess, mock: MockProcess) -> None:
    name = policy_name("requests", "run", 1)
    run = gateway.opened("refusals", "r1", policy=name)
    statuses = [call(gateway, run, run.keys["background"]).status for _ in range(31)]
    assert statuses == [200] + [404] * 30
    receipt = gateway.control.close_run(run)["receipt"]
    assert receipt["totals"]["refused"] == {"run_budget_reached": 30}
    assert receipt["seen"]["stopped_by"] == "run.requests"
    with LedgerReader(gateway.ledger) as reader:
        rows = reader.query("SELECT kind, count(*) AS rows FROM entries WHERE chain = 'run:refusals/r1' AND kind LIKE 'refus%' GROUP BY kind")
    assert {row["kind"]: row["rows"] for row in rows} == {"refuse": 20, "refusal_summary": 1}


def test_nothing_is_held_when_all_is_over(gateway: GatewayProcess) -> None:
    eventually(lambda: gateway.control.metric("gateway_in_flight_calls") == 0, "nothing is in flight")
    assert gateway.control.get("/v1/status")["waiting"]["count"] == 0
