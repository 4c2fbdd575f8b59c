"""Kinds of faults that others have met in gateways and agents, each with its scenario: slots and holds that leak, limits that are passed or never met."""

from __future__ import annotations

import json
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.cli.root import root
from gateway.ledger.reading import LedgerReader
from gateway.mock_engine.tokens import count, render
from tests.support import record
from tests.support.control import OpenedRun
from tests.support.crowd import MESSAGES, Caller, crowd
from tests.support.exact import PROMPT, all_at_once, bodies, exact_gateway, rows, settled
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawClient, chat_once
from tests.support.skips import skip
from tests.support.toml import Tables
from tests.support.waiting import eventually

POLICIES: dict[str, Tables] = {
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
    "refused-connections": {"run": {"requests": 20, "output_tokens": 100, "concurrent": 20}, "admission": {"min_output_tokens": 1}},
    "left-known": {"charging": {"cut_streams": "known"}},
    "left-reserved": {"charging": {"cut_streams": "reserved"}},
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


def test_after_the_end_a_refusal_reads_no_body_and_is_bounded_on_record(gateway: GatewayProcess, mock: MockProcess) -> None:
    run = gateway.opened("cap-after", "r1", policy="cap")
    assert [chat_once(gateway.port, run.key, max_tokens=2).status for _ in range(3)] == [200] * 3
    mock.clear()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {run.key}\r\nContent-Type: application/json\r\n"
    with RawClient(gateway.port) as client:
        client.send(f"{head}Content-Length: 1000000\r\n\r\n".encode())  # and not a byte of it
        answer = client.answer(timeout_s=2)
    assert (answer.status, answer.json()["error"]["code"], answer.headers["x-gateway-limit"]) == (404, "run_budget_reached", "run.requests")
    for body in (b"no JSON at all", b"[" * 100_000):
        with RawClient(gateway.port) as client:
            client.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = client.answer()
        assert (answer.status, answer.headers["x-gateway-settled"], answer.headers["x-should-retry"]) == (404, "3", "false")
    for _ in range(40):
        assert chat_once(gateway.port, run.key, max_tokens=2).status == 404
    assert mock.log() == [], "no engine was asked anything"
    gateway.control.close_run(run)
    assert gateway.control.get("/v1/campaigns/cap-after/runs/r1/receipt")["receipt"]["totals"]["refused"] == {"run_budget_reached": 43}
    with LedgerReader(gateway.ledger) as reader:
        kinds = Counter(str(row["kind"]) for row in reader.query("SELECT kind FROM journal WHERE json_extract(body, '$.campaign') = 'cap-after'"))
    assert (kinds["refuse"], kinds["refusal_summary"]) == (20, 1), kinds


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
            asks = {"messages": MESSAGES} if "chat" in path.casefold() or path.endswith("/messages") else {"prompt": "a", "input": "a"}
            body = json.dumps({"model": "mock", "max_tokens": 2, **asks}).encode()
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


def test_twenty_refused_connections_hold_nothing_and_the_whole_budget_is_there_after(gateway: GatewayProcess) -> None:
    """Beside `test_an_engines_error_is_charged_as_the_policy_says_and_holds_nothing`: here nothing was ever sent."""
    run = gateway.opened("refused-connections", "r1", policy="refused-connections")
    answers = all_at_once(gateway, [(run, "foreground", {"model": "gone", "max_tokens": 5, "stream": number % 2 == 0}) for number in range(20)])
    assert {(answer.status, answer.json()["error"]["code"]) for answer in answers} <= {(502, "engine_unreachable"), (503, "engine_unavailable")}
    assert {row["status"] for row in rows(gateway, run)} <= {"voided"}
    for name in ("requests", "output_tokens", "concurrent"):
        assert settled(gateway, run, f"run.{name}") == 0
    answers = all_at_once(gateway, [(run, "foreground", {"max_tokens": 5})] * 20)
    assert Counter(answer.status for answer in answers) == {200: 20}
    assert chat_once(gateway.port, run.key, max_tokens=1).status == 404, "and it was all"


@pytest.mark.parametrize("way", ["the API", "the command line"])
def test_a_cap_that_was_declared_is_shown_and_holds_however_its_run_was_opened(gateway: GatewayProcess, way: str) -> None:
    campaign = f"shown-{way.replace(' ', '-').lower()}"
    if way == "the API":
        run = gateway.opened(campaign, "r1", policy="cap")
    else:
        typed(gateway, "campaign", "open", campaign, "--policy", "cap")
        opened = json.loads(typed(gateway, "run", "open", f"{campaign}/r1", "--json"))
        run = OpenedRun(campaign=campaign, run="r1", keys={lane: str(secret) for lane, secret in opened["keys"].items()})
    for used in range(3):
        told = [limit for limit in gateway.control.run(run)["limits"] if limit["name"] == "run.requests"]
        assert [(limit["ceiling"], limit["settled"]) for limit in told] == [(3, used)]
        assert f"{3 - used}" in typed(gateway, "run", "budget", f"{campaign}/r1")
        assert chat_once(gateway.port, run.key, max_tokens=2).status == 200
    refused = chat_once(gateway.port, run.key, max_tokens=2)
    assert (refused.status, refused.headers["x-gateway-limit"], refused.headers["x-gateway-settled"]) == (404, "run.requests", "3")


def typed(gateway: GatewayProcess, *words: str) -> str:
    done = CliRunner().invoke(root, list(words), env={"GATEWAY_SOCKET": gateway.process.ready["control"].removeprefix("unix:")})
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(("spelt", "meant"), [("max_totl_tokens", "total_tokens"), ("requets", "requests")])
def test_a_cap_that_is_misspelt_is_an_error_that_names_what_was_meant(tmp_path: Path, spelt: str, meant: str) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(f'apis = ["openai.chat"]\n[models.mock]\n[run]\n{spelt} = 5\n')
    done = CliRunner().invoke(root, ["policy", "check", str(wrong)])
    assert done.exit_code == 2 and f"{wrong}:4" in done.output
    assert spelt in done.output and meant in done.output
