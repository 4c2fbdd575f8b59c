"""Limits to the last one under two hundred callers at once, over sockets: what reached the engine is read from its own log, charges from the ledger."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.control import ControlAnswered
from tests.support.exact import PROMPT, Called, all_at_once, exact_gateway, rows, settled
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import chat_once
from tests.support.toml import Tables

CALLERS = 200
SMALL: Tables = {"min_output_tokens": 1, "enough_output_tokens": 1}
LANES: Tables = {"foreground": {}, "background": {}}
DAY: Tables = {"timezone": "Asia/Kathmandu"}
POLICIES: dict[str, Tables] = {
    "requests": {"lanes": LANES, "run": {"requests": 23, "background": {"requests": 7}}, "campaign": {"requests": 61, "day": {**DAY, "requests": 59}}},
    "concurrent": {"run": {"concurrent": 3}, "campaign": {"concurrent": 5}},
    "output": {"campaign": {"output_tokens": 1_237}, "admission": {**SMALL, "queue_seconds": 30}},
    "input": {"campaign": {"input_tokens": 1_511}},
    "total": {"campaign": {"total_tokens": 2_003}, "admission": SMALL},
    "input-three": {"run": {"input_tokens": 3 * PROMPT}},
    "input-short": {"run": {"input_tokens": 3 * PROMPT - 1}},
    "total-three": {"run": {"total_tokens": 3 * (PROMPT + 5)}},
    "total-short": {"run": {"total_tokens": 3 * (PROMPT + 5) - 1}},
    "output-three": {"run": {"output_tokens": 15}},
    "output-short": {"run": {"output_tokens": 14}},
    "runs": {"campaign": {"runs": 7}},
    "estimating": {"models": {"mock": {"counter": "tiktoken:o200k_base", "overhead_tokens": 8}}, "run": {"input_tokens": 1_000}},
}


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    with exact_gateway(tmp_path_factory.mktemp("exactness"), mock, POLICIES) as process:
        yield process


@pytest.fixture(autouse=True)
def _plain(mock: MockProcess) -> None:
    mock.script({})
    mock.clear()


def test_requests_of_run_lane_campaign_and_day_are_never_one_over(gateway: GatewayProcess, mock: MockProcess) -> None:
    mock.script({"gap_ms": 2, "output_tokens": 3})
    runs = [gateway.opened("requests", f"r{number}", policy="requests") for number in range(4)]
    callers: list[Called] = [
        (runs[number % 4], "background" if number % 8 < 4 else "foreground", {"stream": number % 3 == 0, "max_tokens": 3}) for number in range(CALLERS)
    ]
    answers = all_at_once(gateway, callers)
    by_run: Counter[str] = Counter()
    by_lane: Counter[tuple[str, str]] = Counter()
    for (run, lane, _), answer in zip(callers, answers, strict=True):
        assert answer.status in (200, 404) and answer.complete
        if answer.status == 200:
            by_run[run.run] += 1
            by_lane[run.run, lane] += 1
    assert len(mock.calls()) == sum(by_run.values()) == 59, "the day's is the narrowest of all"
    assert all(number <= 23 for number in by_run.values())
    assert all(by_lane[run.run, "background"] <= 7 for run in runs)
    for answer in answers:
        if answer.status == 404:
            assert answer.headers["x-gateway-settled"] == answer.headers["x-gateway-ceiling"] or answer.headers["x-gateway-reserved"] != "0"
    assert settled(gateway, runs[0], "campaign.day.requests") == 59


def test_concurrent_is_never_one_over_and_all_of_it_is_used(gateway: GatewayProcess, mock: MockProcess) -> None:
    mock.script({"gap_ms": 3, "output_tokens": 4})
    runs = [gateway.opened("concurrent", f"r{number}", policy="concurrent") for number in range(4)]
    answers = all_at_once(gateway, [(runs[number % 4], "foreground", {"stream": number % 2 == 0, "max_tokens": 4}) for number in range(CALLERS)])
    assert Counter(answer.status for answer in answers) == {200: CALLERS}, "who waits has its turn"
    spans = {answer.headers["x-request-id"]: runs[number % 4].run for number, answer in enumerate(answers)}
    calls = mock.calls()
    assert most_at_once(calls) == 5
    for run in runs:
        assert most_at_once([call for call in calls if spans[call["request_id"]] == run.run]) <= 3


def most_at_once(calls: list[dict[str, Any]]) -> int:
    changes = [(call["arrival"]["monotonic_ns"], 1) for call in calls] + [(call["ended"]["monotonic_ns"], -1) for call in calls]
    now = most = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def most_asked(calls: list[dict[str, Any]]) -> int:
    """Of all moments the most that ended calls had made and running ones were asked for."""
    changes = []
    for call in calls:
        asked = int(json.loads(call["body"])["max_tokens"])
        changes += [(call["arrival"]["monotonic_ns"], asked), (call["ended"]["monotonic_ns"], call["output_tokens"] - asked)]
    now = most = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


@pytest.mark.parametrize("made", [None, 3], ids=["all that is asked for", "less"])
def test_output_asked_for_is_never_one_token_over(gateway: GatewayProcess, mock: MockProcess, made: int | None) -> None:
    mock.script({"gap_ms": 1} if made is None else {"gap_ms": 1, "output_tokens": made})
    campaign = "output-all" if made is None else "output-less"
    runs = [gateway.opened(campaign, f"r{number}", policy="output") for number in range(4)]
    answers = all_at_once(gateway, [(runs[number % 4], "foreground", {"stream": True, "max_tokens": 5 + number % 19}) for number in range(CALLERS)])
    calls = mock.calls()
    assert most_asked(calls) <= 1_237
    generated = sum(call["output_tokens"] for call in calls)
    assert settled(gateway, runs[0], "campaign.output_tokens") == generated
    if made is None:
        assert generated == 1_237, "all of it, and not one more"
        assert {answer.status for answer in answers} == {200, 404}
    else:
        assert Counter(answer.status for answer in answers) == {200: CALLERS}, "600 tokens: there is room for all"


@pytest.mark.parametrize("quantity", ["input", "total"])
def test_input_and_total_are_exact_where_the_engine_counts(gateway: GatewayProcess, mock: MockProcess, quantity: str) -> None:
    ceiling = {"input": 1_511, "total": 2_003}[quantity]
    mock.script({"gap_ms": 1})
    runs = [gateway.opened(f"exact-{quantity}", f"r{number}", policy=quantity) for number in range(4)]
    content = ["hello there" + " and more" * (number % 7) for number in range(CALLERS)]
    callers: list[Called] = [
        (runs[number % 4], "foreground", {"max_tokens": 5, "messages": [{"role": "user", "content": content[number]}]}) for number in range(CALLERS)
    ]
    answers = all_at_once(gateway, callers)
    calls = mock.calls()
    used = sum(call["prompt_tokens"] + (call["output_tokens"] if quantity == "total" else 0) for call in calls)
    assert settled(gateway, runs[0], f"campaign.{quantity}_tokens") == used <= ceiling
    refused = [answer for answer in answers if answer.status == 404]
    assert refused and len(calls) == CALLERS - len(refused)
    least = PROMPT + (1 if quantity == "total" else 0)
    last = chat_once(gateway.port, runs[0].key, max_tokens=1)
    if ceiling - used >= least:
        assert last.status == 200, "what still fits goes"
    else:
        assert (last.status, last.headers["x-gateway-settled"]) == (404, str(used))
    assert not any("overshoot" in (row["flags"] or "") for run in runs for row in rows(gateway, run))


@pytest.mark.parametrize("quantity", ["input", "output", "total"])
def test_of_tokens_the_last_one_goes_and_not_one_more(gateway: GatewayProcess, mock: MockProcess, quantity: str) -> None:
    for fits, policy in ((3, f"{quantity}-three"), (2, f"{quantity}-short")):
        run = gateway.opened(policy, "r1", policy=policy)
        assert [chat_once(gateway.port, run.key, max_tokens=5).status for _ in range(3)] == [200] * fits + [404] * (3 - fits), policy


def test_runs_are_opened_to_the_last_one_and_never_one_more(gateway: GatewayProcess) -> None:
    gateway.control.open_campaign("runs", "runs")
    barrier = threading.Barrier(50)

    def one(number: int) -> str:
        if number < 50:
            barrier.wait()
        try:
            return gateway.control.open_run("runs", f"r{number}").run
        except ControlAnswered as refused:
            assert (refused.status, refused.code) == (409, "run_budget_reached")
            return ""

    with ThreadPoolExecutor(50) as pool:
        opened = [run for run in pool.map(one, range(CALLERS)) if run]
    assert len(opened) == len(set(opened)) == 7


def test_where_the_counter_estimates_what_crosses_is_charged_in_full_flagged_and_summed(gateway: GatewayProcess, mock: MockProcess) -> None:
    reported = 137
    mock.script({"prompt_tokens": reported, "output_tokens": 2})
    run = gateway.opened("estimating", "r1", policy="estimating")
    answers = all_at_once(gateway, [(run, "foreground", {"max_tokens": 2})] * CALLERS)
    calls = len(mock.calls())
    assert Counter(answer.status for answer in answers) == {200: calls, 404: CALLERS - calls}
    used = settled(gateway, run, "run.input_tokens")
    assert used == calls * reported > 1_000, "more than the ceiling, and all of it is charged"
    last = chat_once(gateway.port, run.key, max_tokens=2)
    assert (last.status, last.headers["x-gateway-settled"], last.headers["x-gateway-ceiling"]) == (404, str(used), "1000")
    ledger = rows(gateway, run)
    assert all("overshoot" in row["flags"] and "count_drift" not in row["flags"] for row in ledger)
    above = sum(reported - int(row["reserved_input_tokens"]) for row in ledger)
    receipt = gateway.control.close_run(run)["receipt"]
    assert receipt["totals"]["overshoot"] == {"calls": calls, "input_tokens": above}
    assert receipt["totals"]["charge"]["input_tokens"] == used
    told = gateway.control.get("/v1/usage?campaign=estimating&by=run")
    assert told["groups"][0]["overshoot"] == told["total"]["overshoot"] == {"calls": calls, "input_tokens": above}
    assert gateway.control.metric("gateway_overshoot_tokens_total", model="mock", kind="input") == above
