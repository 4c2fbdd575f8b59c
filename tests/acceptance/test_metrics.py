"""What is measured, on the control socket and on a TCP listener of its own: it equals what happened, by the ledger, and no agent makes it grow."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.accounting.usage import Outcome, Source
from gateway.ledger.reading import LedgerReader
from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawClient, chat_once
from tests.support.waiting import eventually

NAMES = {
    "gateway_calls", "gateway_tokens", "gateway_charged_tokens", "gateway_unknown_usage", "gateway_refusals", "gateway_limit_refusals", "gateway_clamps",
    "gateway_unauthorized", "gateway_undeclared", "gateway_meter_faults",
    "gateway_cancellations", "gateway_waiting_calls", "gateway_in_flight_calls", "gateway_slots_busy",
    "gateway_waited_seconds", "gateway_overhead_seconds", "gateway_ledger_commit_seconds", "gateway_budget_left", "gateway_upstream_up",
    "gen_ai_client_token_usage", "gen_ai_client_operation_duration_seconds",
    "gen_ai_server_time_to_first_token_seconds", "gen_ai_server_time_per_output_token_seconds",
}  # fmt: skip
PREFILL_MS = 400
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    short: Any = {"run": {"requests": 1}, "apis": ["openai.chat"], "models": {"mock": {"default_output_tokens": 64}}}
    clamping: Any = short | {"run": {"output_tokens": 50}, "admission": {"min_output_tokens": 1, "enough_output_tokens": 1}}
    budgeted: Any = short | {
        "run": {},
        "lanes": {"foreground": {}, "background": {}},
        "campaign": {"requests": 9, "output_tokens": 1000, "foreground": {"day": {"output_tokens": 500}}},
        "timezone": "UTC",
    }
    settings: Any = {"control": {"metrics_listen": "127.0.0.1:0"}}
    with GatewayProcess(
        tmp_path_factory.mktemp("metrics"), mock.url, slots=2, settings=settings, policies={"short": short, "clamping": clamping, "budgeted": budgeted}
    ) as process:  # fmt: skip
        yield process


@pytest.fixture(scope="module")
def run(gateway: GatewayProcess) -> OpenedRun:
    return gateway.opened("c1", "r1")


def samples(gateway: GatewayProcess) -> Samples:
    """Every row but the buckets."""
    families = text_string_to_metric_families(gateway.control.text("/metrics"))
    rows = [row for family in families for row in family.samples if not row.name.endswith(("_bucket", "_created"))]
    return {(row.name, frozenset(row.labels.items())): row.value for row in rows}


def labelled(found: Samples, name: str) -> dict[tuple[str, ...], float]:
    """Values of one metric, by its labels' values in the order of their names."""
    return {tuple(value for _, value in sorted(labels)): value for (sample, labels), value in found.items() if sample == name and value}


def gauges(found: Samples) -> tuple[dict[tuple[str, ...], float], ...]:
    return tuple(labelled(found, name) for name in ("gateway_waiting_calls", "gateway_in_flight_calls", "gateway_slots_busy"))


def over_tcp(gateway: GatewayProcess, path: str) -> tuple[int, str]:
    try:
        with DIRECT.open(gateway.process.ready["metrics"] + path, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def rows_of(gateway: GatewayProcess) -> list[Any]:
    with LedgerReader(gateway.ledger) as reader:
        return list(reader.calls())


def test_all_that_was_promised_is_measured_from_the_start(gateway: GatewayProcess) -> None:
    text = gateway.control.text("/metrics")
    families = {family.name for family in text_string_to_metric_families(text)}
    assert families >= NAMES
    assert all(f"# HELP {name}" in text for name in NAMES)


def test_how_calls_ended_and_what_they_used_is_what_the_ledger_says(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    scripts: list[dict[str, Any]] = [
        {"output_tokens": 5, "cached": 3, "reasoning_tokens": 2},
        {},
        {"die": "429"},
        {"die": "500"},
        {"die": "eof", "die_after": 4},
        {"die": "error_event", "die_after": 4},
    ]
    for script in scripts:
        mock.script(script)
        for stream in (True, False):
            chat_once(gateway.port, run.key, stream=stream, max_tokens=9)
    rows, found = rows_of(gateway), samples(gateway)
    assert len(rows) == 2 * len(scripts)
    assert labelled(found, "gateway_calls_total") == Counter((row["model"], row["outcome"], row["source"], row["upstream"]) for row in rows)
    whole = Counter("" if row["outcome"] in ("completed", "length") else row["outcome"] for row in rows)
    durations: Counter[str] = Counter()
    for labels, number in ((dict(labels), value) for (name, labels), value in found.items() if name == "gen_ai_client_operation_duration_seconds_count"):
        assert (labels["gen_ai_operation_name"], labels["gen_ai_provider_name"], labels["gen_ai_request_model"]) == ("chat", "llama.cpp", "mock")
        durations[labels["error_type"]] += int(number)
    assert durations == whole
    assert {row["outcome"] for row in rows} >= {"completed", "length", "engine_refused", "engine_error", "engine_died"}
    tokens: Counter[tuple[str, ...]] = Counter()
    charged: Counter[tuple[str, ...]] = Counter()
    unknown: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        for kind in ("input", "output", "cached", "reasoning"):
            if row[f"{kind}_tokens"] is not None:
                tokens[kind, row["model"], row["source"]] += row[f"{kind}_tokens"]
        for kind in ("input", "output"):
            charged[kind, row["model"]] += row[f"charged_{kind}_tokens"]
            unknown[kind, row["model"]] += int(row[f"{kind}_tokens"] is None)
    assert labelled(found, "gateway_tokens_total") == +tokens
    for kind in ("input", "output"):
        of_kind = {key: value for key, value in found.items() if ("gen_ai_token_type", kind) in key[1]}
        assert sum(value for (name, _), value in of_kind.items() if name == "gen_ai_client_token_usage_sum") == sum(
            number for (one, *_), number in tokens.items() if one == kind
        )
        known = sum(row[f"{kind}_tokens"] is not None for row in rows)
        assert sum(value for (name, _), value in of_kind.items() if name == "gen_ai_client_token_usage_count") == known
    assert labelled(found, "gateway_charged_tokens_total") == +charged
    assert labelled(found, "gateway_unknown_usage_total") == +unknown
    assert {source for _, _, source in tokens} >= {"reported", "counted"} and any(unknown.values())
    assert labelled(found, "gateway_overhead_seconds_count") == {(): len(rows)}
    assert labelled(found, "gateway_waited_seconds_count") == {("mock",): len(rows)}
    assert labelled(found, "gateway_ledger_commit_seconds_count")[()] >= len(rows)


def test_refusals_are_counted_by_their_code_and_limit(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.script({"output_tokens": 5})
    before = samples(gateway)
    short = gateway.opened("short", "r1", policy="short")
    assert [chat_once(gateway.port, short.key).status for _ in range(3)] == [200, 404, 404]
    assert chat_once(gateway.port, run.key, model="nobody").status == 404
    assert chat_once(gateway.port, run.key, messages="text").status == 400
    assert chat_once(gateway.port, "unknown-key").status == 401
    with RawClient(gateway.port) as client:
        client.request("GET", "/slots", headers={"Authorization": f"Bearer {run.key}", "Connection": "close"})
        assert client.answer().status == 404
    found = samples(gateway)
    grown = {key: value - before.get(key, 0) for key, value in found.items()}
    assert labelled(grown, "gateway_refusals_total") == {("run_budget_reached",): 2, ("model_not_found",): 1, ("body_invalid",): 1}
    assert labelled(grown, "gateway_limit_refusals_total") == {("run.requests",): 2}
    assert labelled(grown, "gateway_unauthorized_total") == {(): 1}
    assert labelled(grown, "gateway_undeclared_total") == {(): 1}


def test_a_clamp_is_counted_by_its_limit(gateway: GatewayProcess, mock: MockProcess) -> None:
    clamping = gateway.opened("clamping", "r1", policy="clamping")
    assert "x-gateway-clamped" in chat_once(gateway.port, clamping.key, max_tokens=60).headers
    assert labelled(samples(gateway), "gateway_clamps_total") == {("run.output_tokens",): 1}


def test_the_first_token_is_timed_at_the_first_content_and_the_overhead_without_the_engine(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.script({"output_tokens": 5, "prefill_ms": PREFILL_MS, "ping_ms": 50, "gap_ms": 150})
    before = samples(gateway)
    assert chat_once(gateway.port, run.key, stream=True, max_tokens=9).status == 200
    grown = {key: value - before.get(key, 0) for key, value in samples(gateway).items()}
    of_call = ("chat", "llama.cpp", "mock", "mock", "engine")
    first_s = labelled(grown, "gen_ai_server_time_to_first_token_seconds_sum")[of_call]
    assert labelled(grown, "gen_ai_server_time_to_first_token_seconds_count") == {of_call: 1}
    each_s = labelled(grown, "gen_ai_server_time_per_output_token_seconds_sum")[of_call]
    assert 0.14 <= each_s < 0.4, "the gap between tokens, without the first one's wait"
    assert PREFILL_MS / 1000 <= first_s < PREFILL_MS / 1000 + 0.4, "comments are no content, and the rest of the answer takes longer"
    assert labelled(grown, "gateway_overhead_seconds_sum")[()] < PREFILL_MS / 1000


def test_gauges_show_what_waits_and_what_is_at_work_and_fall_back_to_nothing(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.script({"output_tokens": 10, "gap_ms": 100})
    with ThreadPoolExecutor(5) as pool:
        calls = [pool.submit(chat_once, gateway.port, run.key, max_tokens=20) for _ in range(5)]
        shown = ({("slot",): 3}, {(): 2}, {("engine",): 2})
        eventually(lambda: gauges(samples(gateway)) == shown, "three wait, two are at work")
        assert [call.result().status for call in calls] == [200] * 5
    assert gauges(samples(gateway)) == ({}, {}, {})


def test_nothing_that_an_agent_sends_makes_a_series(gateway: GatewayProcess, mock: MockProcess, run: OpenedRun) -> None:
    mock.script({"output_tokens": 2, "finish_reason": "a_word_of_its_own"})
    chat_once(gateway.port, run.key, max_tokens=9)
    before = set(samples(gateway))
    for number in range(20):
        chat_once(gateway.port, run.key, model=f"model-{number}")
        chat_once(gateway.port, f"key-{number}")
        chat_once(gateway.port, run.key, max_tokens=5, user=f"user-{number}", headers={"x-session-id": f"s{number}"})
        with RawClient(gateway.port) as client:
            client.request("GET", f"/path-{number}", headers={"Authorization": f"Bearer {run.key}", "Connection": "close"})
            client.answer()
    found = set(samples(gateway))
    assert found == before
    known: dict[str, set[str]] = {
        "model": {"mock"},
        "outcome": set(Outcome),
        "source": set(Source),
        "kind": {"input", "output", "cached", "reasoning"},
        "upstream": {"engine"},
        "gen_ai_request_model": {"mock"},
        "gen_ai_response_model": {"mock", "_OTHER", ""},
        "gen_ai_operation_name": {"chat"},
        "error_type": {"", *Outcome},
        "campaign": {"", "c1", "short", "clamping"},
    }
    for name, labels in found:
        for label, value in labels:
            assert value in known.get(label, {value}), name


def test_a_campaigns_budgets_are_shown_while_it_is_open(gateway: GatewayProcess, mock: MockProcess) -> None:
    mock.script({"output_tokens": 7})
    run = gateway.opened("budgeted", "r1", policy="budgeted")
    assert chat_once(gateway.port, run.key, max_tokens=9).status == 200

    def left() -> dict[tuple[str, ...], float]:
        return {key: value for key, value in labelled(samples(gateway), "gateway_budget_left").items() if "budgeted" in key}

    # campaign, lane, limit, quantity, window
    assert left() == {
        ("budgeted", "", "campaign.requests", "requests", ""): 8,
        ("budgeted", "", "campaign.output_tokens", "output_tokens", ""): 993,
        ("budgeted", "foreground", "campaign.foreground.day.output_tokens", "output_tokens", "day"): 493,
    }
    gateway.control.post("/v1/campaigns/budgeted/reconciled", {"as_of": 1, "classes": {"equal": 4, "made_up": 1}, "unexplained": 1, "sha256": "0" * 64})
    told = labelled(samples(gateway), "gateway_reconciliation_rows")
    assert told == {("budgeted", "equal"): 4, ("budgeted", "other"): 1}
    assert labelled(samples(gateway), "gateway_reconciliation_unexplained") == {("budgeted",): 1}
    gateway.control.post("/v1/campaigns/budgeted/close", {"close_seconds": 0})
    eventually(lambda: not any(("campaign", "budgeted") in labels for _, labels in samples(gateway)), "its series are gone")


def test_the_tcp_listener_tells_the_same_and_nothing_else(gateway: GatewayProcess) -> None:
    status, text = over_tcp(gateway, "/metrics")
    assert status == 200
    told = {(row.name, frozenset(row.labels.items())) for family in text_string_to_metric_families(text) for row in family.samples}
    assert set(samples(gateway)) <= told
    assert [over_tcp(gateway, path)[0] for path in ("/livez", "/readyz")] == [200, 200]
    assert {over_tcp(gateway, path)[0] for path in ("/v1/campaigns", "/v1/status", "/v1/usage", "/v1/keys", "/")} == {404}
