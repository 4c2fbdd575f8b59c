"""Limits to the last one under two hundred callers at once, over sockets: what reached the engine is read from its own log, charges from the ledger."""

from __future__ import annotations

import json
import resource
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gateway.ledger.reading import LedgerReader
from gateway.mock_engine.tokens import count, render
from tests.support import record
from tests.support.control import ControlAnswered, OpenedRun
from tests.support.crowd import MESSAGES, Caller, crowd
from tests.support.gateway_process import POLICY, GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, RawClient, chat_once
from tests.support.skips import skip
from tests.support.toml import Tables, merged
from tests.support.waiting import eventually

CALLERS = 200
PROMPT = count(render({"messages": MESSAGES}))
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
    "thousand": {"run": {"total_tokens": 1_000}},
    "cap": {"run": {"requests": 3}},
    "much": {"run": {"requests": 1_000, "input_tokens": 9_999, "output_tokens": 9_999, "total_tokens": 10_000}},
    "two-at-once": {"run": {"concurrent": 2}},
    "forgiving": {"charging": {"engine_errors": "nothing"}, "run": {"output_tokens": 100, "total_tokens": 200}},
    "strict": {"charging": {"engine_errors": "reserved"}, "run": {"output_tokens": 1_000, "total_tokens": 2_000}},
    "usual": {"run": {"output_tokens": 1_000, "total_tokens": 2_000}},
    "five-hundred": {"run": {"total_tokens": 500}, "admission": {"min_output_tokens": 1}},
    "five-hundred-or-none": {"run": {"total_tokens": 500}},
    "thirty-thousand": {"models": {"mock": {"default_output_tokens": 64, "context_tokens": 128_000}}, "run": {"total_tokens": 30_000}},
    "one": {"run": {"requests": 1}},
    "left-known": {"charging": {"cut_streams": "known"}},
    "left-reserved": {"charging": {"cut_streams": "reserved"}},
}


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    models: Tables = {"models": {"mock": {}, "timed": {"default_output_tokens": 16}}}
    whole = {name: merged(merged(POLICY, models), tables) for name, tables in POLICIES.items()}
    timed = {"address": mock.url, "engine": "llama.cpp", "slots": 8, "models": {"timed": "mock"}, "timeouts": {"first_byte_s": 1}}
    settings: Tables = {"upstreams": {"timed": timed}, "limits": {"requests": 10_000}}
    with GatewayProcess(tmp_path_factory.mktemp("exactness"), mock.url, policies=whole, slots=64, settings=settings) as process:
        yield process
        eventually(lambda: process.control.metric("gateway_in_flight_calls") == 0, "nothing is in flight")
        assert record.reserved(process) == 0
        assert process.stop() == 0
        assert record.fits(process)


@pytest.fixture(autouse=True)
def _plain(mock: MockProcess) -> Iterator[None]:
    mock.script({})
    mock.clear()
    yield


Called = tuple[OpenedRun, str, dict[str, object]]


def all_at_once(gateway: GatewayProcess, callers: list[Called]) -> list[RawAnswer]:
    return crowd(gateway.port, [Caller(key=run.keys[lane], body=body) for run, lane, body in callers])


def settled(gateway: GatewayProcess, run: OpenedRun, name: str) -> int:
    [limit] = [limit for limit in gateway.control.run(run)["limits"] if limit["name"] == name]
    assert limit["reserved"] == 0
    return int(limit["settled"])


def rows(gateway: GatewayProcess, run: OpenedRun) -> list[dict[str, Any]]:
    with LedgerReader(gateway.ledger) as reader:
        return list(reader.calls(campaign=run.campaign, run=run.run))


def bodies(mock: MockProcess) -> list[dict[str, Any]]:
    return [json.loads(call["body"]) for call in mock.calls()]


# -- two hundred at once


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


# -- from public reports: each is a kind of error, found somewhere


def test_of_twenty_streams_at_once_three_fit_a_thousand_tokens(gateway: GatewayProcess, mock: MockProcess) -> None:
    mock.script({"chunk_tokens": 20, "gap_ms": 5})
    run = gateway.opened("thousand", "r1", policy="thousand")
    more = 100 - PROMPT
    messages = [{"role": "user", "content": "hello there" + " a" * (more // 2) + " " * (more % 2)}]
    assert count(render({"messages": messages})) == 100
    answers = all_at_once(gateway, [(run, "foreground", {"stream": True, "max_tokens": 200, "messages": messages})] * 20)
    assert Counter(answer.status for answer in answers) == {200: 3, 404: 17}
    assert (len(mock.calls()), settled(gateway, run, "run.total_tokens")) == (3, 900)


def test_what_is_spent_stays_spent_however_often_it_is_tried(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("cap", "r1", policy="cap")
    assert [chat_once(gateway.port, run.key, max_tokens=2).status for _ in range(53)] == [200] * 3 + [404] * 50
    assert (len(mock.calls()), settled(gateway, run, "run.requests")) == (3, 3)


def test_five_hundred_calls_are_settled_once_each_in_the_ledger_in_memory_and_in_the_metrics(gateway: GatewayProcess, mock: MockProcess) -> None:
    mock.script({"prompt_tokens": PROMPT, "output_tokens": 20 - PROMPT})
    run = gateway.opened("much", "r1", policy="much")
    before = {kind: gateway.control.metric("gateway_charged_tokens_total", model="mock", kind=kind) for kind in ("input", "output")}
    answers = crowd(gateway.port, [Caller(key=run.key, body={"max_tokens": 20 - PROMPT, "stream": number % 2 == 0}) for number in range(500)], at_once=50)
    assert Counter(answer.status for answer in answers) == {200: 500}
    assert (settled(gateway, run, "run.total_tokens"), settled(gateway, run, "run.requests")) == (10_000, 500)
    usage = gateway.control.get("/v1/usage?campaign=much&by=run")["groups"][0]
    with LedgerReader(gateway.ledger) as reader:
        in_ledger = reader.query("SELECT settled FROM accounts WHERE account = :account", account="run|much/r1|||total_tokens|")
    assert int(str(in_ledger[0]["settled"])) == 10_000
    assert usage["charge"]["input_tokens"] + usage["charge"]["output_tokens"] == 10_000
    assert usage["usage"]["input_tokens"] == {"sum": 500 * PROMPT, "unknown": 0}
    after = {kind: gateway.control.metric("gateway_charged_tokens_total", model="mock", kind=kind) for kind in ("input", "output")}
    assert sum(after.values()) - sum(before.values()) == 10_000
    assert chat_once(gateway.port, run.key, max_tokens=1).status == 404, "and it was all"


def test_ten_engines_that_time_out_leave_both_slots_free(gateway: GatewayProcess, mock: MockProcess) -> None:
    mock.script({"die": "hang_before_headers"})
    run = gateway.opened("two-at-once", "r1", policy="two-at-once")
    answers = all_at_once(gateway, [(run, "foreground", {"model": "timed", "max_tokens": 2, "stream": number % 2 == 0}) for number in range(10)])
    assert Counter((answer.status, answer.json()["error"]["code"]) for answer in answers) == {(504, "engine_timeout"): 10}
    mock.script({})
    assert chat_once(gateway.port, run.key, max_tokens=2).status == 200
    assert gateway.control.metric("gateway_in_flight_calls") == 0
    assert settled(gateway, run, "run.concurrent") == 0


@pytest.mark.parametrize(("policy", "charged"), [("forgiving", "nothing"), ("usual", "the prompt"), ("strict", "the reservation")])
@pytest.mark.parametrize("die", ["500", "reset_before_headers", "error_event"])
def test_an_engines_error_is_charged_as_the_policy_says_and_holds_nothing(
    gateway: GatewayProcess, mock: MockProcess, policy: str, charged: str, die: str
) -> None:
    run = gateway.opened(f"{policy}-{die.replace('_', '-')}", "r1", policy=policy)
    mock.script({"die": die})
    answers = all_at_once(gateway, [(run, "foreground", {"max_tokens": 10, "stream": True})] * 4)
    assert all(answer.status in (500, 502) for answer in answers)
    ledger = rows(gateway, run)
    prompt = 0 if charged == "nothing" else int(ledger[0]["reserved_input_tokens"])
    assert prompt >= (0 if charged == "nothing" else PROMPT), "the count, or the bound where a bound was enough"
    output = 10 if charged == "the reservation" else 0
    assert [record.charge(row) for row in ledger] == [(prompt, output)] * 4, ledger
    assert all(row["source"] == "unknown" and row["output_tokens"] is None and row["charged_requests"] == 1 for row in ledger)
    assert settled(gateway, run, "run.total_tokens") == 4 * (prompt + output)
    mock.script({})
    if policy == "forgiving":
        answer = chat_once(gateway.port, run.key, max_tokens=100)
        assert answer.status == 200, "all of the budget is there"
        assert bodies(mock)[-1]["max_tokens"] == 100


@pytest.mark.parametrize(("policy", "all_of_it"), [("left-known", False), ("left-reserved", True)])
def test_a_stream_that_its_client_leaves_is_charged_as_the_policy_says(gateway: GatewayProcess, mock: MockProcess, policy: str, all_of_it: bool) -> None:
    mock.script({"gap_ms": 20, "output_tokens": 400})
    run = gateway.opened(policy, "r1", policy=policy)
    with RawClient(gateway.port) as client:
        client.chat(run.key, stream=True, max_tokens=400)
        client.read_events(6)
    eventually(lambda: gateway.control.run(run)["in_flight"] == 0, "it is settled")
    [row] = rows(gateway, run)
    assert (row["outcome"], row["source"]) == ("client_cancelled", "counted")
    assert 4 <= row["output_tokens"] < 100, "what was delivered, whatever is charged"
    assert row["charged_output_tokens"] == (400 if all_of_it else row["output_tokens"])


def test_a_call_that_names_no_ceiling_is_given_no_more_than_what_is_left(gateway: GatewayProcess, mock: MockProcess) -> None:
    for policy, goes in (("five-hundred", True), ("five-hundred-or-none", False)):
        run = gateway.opened(policy, "r1", policy=policy)
        mock.script({"output_tokens": 480 - PROMPT})
        assert chat_once(gateway.port, run.key, max_tokens=480 - PROMPT).status == 200
        assert settled(gateway, run, "run.total_tokens") == 480
        mock.script({})
        answer = chat_once(gateway.port, run.key)
        if goes:
            assert answer.status == 200
            assert bodies(mock)[-1]["max_tokens"] == 20 - PROMPT
            assert answer.headers["x-gateway-clamped"] == f"{20 - PROMPT} run.total_tokens"
            assert settled(gateway, run, "run.total_tokens") == 500
        else:
            assert (answer.status, answer.headers["x-gateway-limit"], answer.headers["x-gateway-settled"]) == (404, "run.total_tokens", "480")


def test_who_asks_for_far_too_much_is_given_what_is_left_and_told(gateway: GatewayProcess, mock: MockProcess) -> None:
    mock.script({"output_tokens": 2})
    run = gateway.opened("thirty-thousand", "r1", policy="thirty-thousand")
    long = [{"role": "user", "content": "word " * 200}]
    prompt = count(render({"messages": long}))
    answer = chat_once(gateway.port, run.key, max_tokens=64_000, messages=long)
    assert answer.status == 200
    assert bodies(mock)[-1]["max_tokens"] == 30_000 - prompt
    assert answer.headers["x-gateway-clamped"] == f"{30_000 - prompt} run.total_tokens"


def test_no_path_goes_round_a_spent_limit(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("one", "r1", policy="one")
    assert chat_once(gateway.port, run.key, max_tokens=2).status == 200
    mock.clear()
    paths = ["/v1/chat/completions", "/chat/completions", "/v1/completions", "/completion", "/v1/responses", "/v1/messages", "/v1/embeddings", "/rerank"]
    for path in [*paths, "/api/chat", "/api/generate", "/v1//chat/completions", "/v1/chat/completions/", "/V1/CHAT/COMPLETIONS", "/infill", "/generate"]:
        with RawClient(gateway.port) as client:
            body = json.dumps({"model": "mock", "messages": MESSAGES, "prompt": "a", "input": "a", "max_tokens": 2}).encode()
            client.request("POST", path, headers={"Authorization": f"Bearer {run.key}", "Content-Type": "application/json"}, body=body)
            assert client.answer().status == 404, path
    assert [seen["path"] for seen in mock.log() if seen["method"] == "POST"] == [], "not even to be counted"


def test_each_turn_of_a_loop_has_its_own_record_also_the_one_that_failed(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("usual-loop", "r1", policy="usual")
    turns: list[dict[str, Any]] = list(MESSAGES)
    expected = []
    for number in range(5):
        mock.script({"die": "500"} if number == 3 else {"tool_calls": 1})
        answer = chat_once(gateway.port, run.key, messages=turns, max_tokens=30)
        assert answer.status == (500 if number == 3 else 200)
        expected.append("engine_error" if number == 3 else "completed")
        if answer.status == 200:
            said = answer.json()["choices"][0]["message"]
            turns += [said, {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "done"}]
    ledger = rows(gateway, run)
    assert [row["outcome"] for row in ledger] == expected
    assert [row["input_tokens"] for row in ledger if row["source"] == "reported"] == [call["prompt_tokens"] for call in mock.calls() if call["status"] == 200]
    assert gateway.control.close_run(run)["receipt"]["totals"]["calls"] == 5


def test_two_thousand_connections_are_served_or_told_and_nothing_is_left_of_them(gateway: GatewayProcess, mock: MockProcess) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 5_000:
        skip("few-files", "this machine lets a process open too few files")
    mock.script({"output_tokens": 3})
    run = gateway.opened("many-connections", "r1", policy="left-known")
    answers = crowd(gateway.port, [Caller(key=run.key, body={"max_tokens": 3, "stream": number % 2 == 0}) for number in range(2_000)])
    told = Counter((answer.status, "" if answer.status == 200 else answer.json()["error"]["code"]) for answer in answers)
    assert set(told) <= {(200, ""), (503, "overloaded")}
    assert told[200, ""] == len(mock.calls()) >= 1_000, "as many as may wait"
    assert not any("x-should-retry" in answer.headers for answer in answers if answer.status == 503), "it may be tried again"
    assert gateway.control.metric("gateway_in_flight_calls") == 0
    status = Path(f"/proc/{gateway.process.pid}/status")
    if status.exists():
        assert int(status.read_text().partition("VmRSS:")[2].split()[0]) < 250_000, "kB"
