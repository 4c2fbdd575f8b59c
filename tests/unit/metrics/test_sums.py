"""Plain numbers become what Prometheus reads."""

from __future__ import annotations

import random

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from gateway.metrics import sums
from gateway.metrics.metrics import DURATION_SECONDS, FINE_SECONDS, FIRST_TOKEN_SECONDS, PER_TOKEN_SECONDS, SECONDS, TOKENS, Metrics


def rendered(*families: sums.Family) -> list[str]:
    registry = CollectorRegistry()
    registry.register(sums.Collected(families))
    return generate_latest(registry).decode().splitlines()


def test_a_histogram_is_written_as_prometheus_own_client_writes_it() -> None:
    registry = CollectorRegistry()
    theirs = Histogram("x_seconds", "X.", ["model"], buckets=SECONDS, registry=registry)
    ours = sums.Histogram("x_seconds", "X.", ["model"], bounds=SECONDS)
    choose = random.Random(7)
    for value in (*SECONDS, 0.0, 500.0, *(choose.expovariate(1) for _ in range(200))):
        theirs.labels("a").observe(value)
        ours.labels("a").observe(value)
    without = [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]
    assert rendered(ours) == without


def test_one_without_labels_is_there_from_the_start_and_one_with_labels_when_it_is_used() -> None:
    plain, labelled = sums.Counter("a", "A."), sums.Counter("b", "B.", ["code"])
    assert [line for line in rendered(plain, labelled) if not line.startswith("#")] == ["a_total 0.0"]
    labelled.labels("busy").inc(2)
    plain.inc()
    assert [line for line in rendered(plain, labelled) if not line.startswith("#")] == ["a_total 1.0", 'b_total{code="busy"} 2.0']


def test_a_level_is_asked_for_when_it_is_read_and_leaves_nothing_behind() -> None:
    level, rows = sums.Level("left", "Left.", ["campaign"]), [(("c1",), 7.0)]
    level.read = lambda: rows
    assert 'left{campaign="c1"} 7.0' in rendered(level)
    rows.clear()
    assert [line for line in rendered(level) if not line.startswith("#")] == []


def test_bounds_rise_and_no_name_is_there_twice() -> None:
    for bounds in (SECONDS, FINE_SECONDS, TOKENS, DURATION_SECONDS, FIRST_TOKEN_SECONDS, PER_TOKEN_SECONDS):
        assert list(bounds) == sorted(set(bounds))
    names = [each.name for each in Metrics().families]
    assert len(names) == len(set(names))
    assert all(name.startswith(("gateway_", "gen_ai_")) for name in names)


def test_what_a_call_adds_to_is_found_again() -> None:
    metrics = Metrics()
    values = ("chat", "vllm", "small", "small", "a")
    metrics.of_call(*values).input_tokens.observe(3)
    metrics.of_call(*values).input_tokens.observe(4)
    labels = 'gen_ai_operation_name="chat",gen_ai_provider_name="vllm",gen_ai_request_model="small",gen_ai_response_model="small"'
    lines = metrics.render().decode().splitlines()
    assert any(line.startswith("gen_ai_client_token_usage_sum{") and labels in line and line.endswith(" 7.0") for line in lines)
