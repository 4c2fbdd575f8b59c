"""Every expression of every panel and rule, run by a real Prometheus that scraped a real gateway under load: it has data, or is listed with the reason."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.dashboards.picture import draw
from tests.dashboards.prometheus import Prometheus
from tests.dashboards.traffic import traffic
from tests.support import promql

LOAD_S = 40.0
WINDOW = "15s"
"""In place of $__rate_interval: the scrapes are a second apart."""
QUIET = {
    "budgets: Hours until it is spent": "looked at over half an hour: the load is shorter, so a curve may be missing where a limit is not charged",
    "reliability: Not readable, not measured": "its second curve: no fault of the gateway's own is made here",
}
"""Panels of which an expression may rightly be empty. Each is asked all the same: Prometheus must take it."""
QUIET_RECORDS: dict[str, str] = {}
ALERTS_OF_THE_LOAD = {
    "EngineDown", "EngineRejectsGateway", "EngineIgnoresCap", "EngineFails", "ReconciliationUnexplained", "CountDrift", "UnknownUsage",
}  # fmt: skip
"""What the load really does must be seen by the alerts, pending or firing."""


@dataclass(frozen=True, slots=True)
class Seen:
    prometheus: Prometheus
    begin: float
    end: float


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("seen")
    with traffic(folder / "gateway") as made:
        target = made.gateway.process.ready["metrics"].removeprefix("http://")
        with Prometheus(folder / "prometheus", target) as prometheus:
            begin = time.time()
            time.sleep(LOAD_S)
            made.gateway.control.post("/v1/campaigns/nightly/halt", {"reason": "looked at"})
            time.sleep(3)
            yield Seen(prometheus, begin, time.time())


@pytest.mark.parametrize("asked", promql.asked_by_panels(), ids=lambda asked: f"{asked.where}: {asked.expr[:40]}")
def test_a_panel_has_data(seen: Seen, asked: promql.Asked) -> None:
    found = seen.prometheus.ask_over(asked.filled(WINDOW), seen.begin + 10, seen.end)
    real = [value for series in found for _, value in series["values"] if value not in ("NaN", "+Inf", "-Inf")]
    if asked.where not in QUIET:
        assert real, f"{asked.where} is empty: {asked.filled(WINDOW)}"


@pytest.mark.parametrize("rule", promql.rules(promql.RULES), ids=lambda rule: rule["record"])
def test_a_recording_rule_records(seen: Seen, rule: dict[str, str]) -> None:
    assert seen.prometheus.ask(rule["record"], seen.end), rule["record"]


def test_every_rule_is_evaluated_without_error(seen: Seen) -> None:
    found = seen.prometheus.rules()
    assert {rule["name"] for rule in found} == {asked.where for asked in promql.asked_by_rules()}
    assert [(rule["name"], rule.get("lastError")) for rule in found if rule["health"] != "ok"] == []


def test_alerts_see_what_the_load_did_and_nothing_that_it_did_not(seen: Seen) -> None:
    awake = {rule["name"] for rule in seen.prometheus.rules() if rule["type"] == "alerting" and rule["state"] != "inactive"}
    assert awake >= ALERTS_OF_THE_LOAD
    assert not awake & {"GatewayDown", "LedgerNotWritable", "ClockInDoubt", "LedgerCommitFailed", "CallsUnmeasured", "OpenFilesNearlyUsedUp"}


def test_no_label_has_a_value_that_an_agent_chose(seen: Seen) -> None:
    for series in seen.prometheus.ask('{__name__=~"gateway_.+|gen_ai_.+"}', seen.end):
        assert not {"nobody", "a-key-of-nobody"} & set(series["metric"].values())


def test_the_panels_are_drawn(seen: Seen, tmp_path: Path) -> None:
    """A picture of what they show; kept where `GATEWAY_DASHBOARDS_PICTURE` says."""
    path = Path(os.environ.get("GATEWAY_DASHBOARDS_PICTURE") or tmp_path / "overview.svg")
    draw(path, seen.prometheus, seen.begin + 10, seen.end, WINDOW)
    assert path.stat().st_size > 5_000
