"""Each alert fires where it should and keeps still one below, by `promtool test rules`; configuration and rules are what Prometheus takes."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import promql

Series = dict[str, str]
"""A series -> its values, a minute apart, as promtool writes them."""


@dataclass(frozen=True, slots=True)
class Case:
    fires: Series
    still: Series
    """The same, one below what rings."""
    labels: dict[str, str] = field(default_factory=dict)
    """Of the alert that fires, beside its severity."""
    at: str = "20m"


def one(series: str, fires: object, still: object, **labels: str) -> Case:
    return Case({series: f"{fires}x60"}, {series: f"{still}x60"}, labels)


def rises(series: str, **labels: str) -> Case:
    """A counter that rises by one within the last minutes, or does not."""
    return Case({series: "0x15 1x45"}, {series: "5x60"}, labels)


def calls(bad: int) -> Series:
    """Of a thousand a minute."""
    return {
        'gateway_calls_total{upstream="a",model="m",outcome="engine_error",source="unknown"}': f"0+{bad}x90",
        'gateway_calls_total{upstream="a",model="m",outcome="completed",source="reported"}': f"0+{1000 - bad}x90",
    }


def unknown(bad: int) -> Series:
    return {**calls(0), 'gateway_unknown_usage_total{model="m",kind="output"}': f"0+{bad}x90"}


def commits(slow: int) -> Series:
    """Of a thousand a minute so many take longer than 0.25 s."""
    name = "gateway_ledger_commit_seconds_bucket"
    return {
        f'{name}{{instance="g",le="0.25"}}': f"0+{1000 - slow}x60",
        f'{name}{{instance="g",le="1.0"}}': "0+1000x60",
        f'{name}{{instance="g",le="+Inf"}}': "0+1000x60",
    }


def of(name: str, value: object, limit: str, ceiling: object, labels: str = 'instance="g"') -> Series:
    return {f"{name}{{{labels}}}": f"{value}x60", f"{limit}{{{labels}}}": f"{ceiling}x60"}


LIMIT = 'campaign="c",limit="campaign.output_tokens",quantity="output_tokens"'
PROCESS = 'job="gateway"'
CASES: dict[str, Case] = {
    "GatewayDown": one('up{job="gateway",instance="g"}', 0, 1, job="gateway", instance="g"),
    "GatewayNotReady": one("gateway_ready", 0, 1),
    "EngineDown": Case(
        {'gateway_upstream_up{upstream="a"}': "0x60", 'gateway_upstream_standing{upstream="a",standing="drained"}': "0x60"},
        {
            **{f'gateway_upstream_up{{upstream="{name}"}}': values for name, values in (("a", "1x60"), ("b", "0x60"))},
            'gateway_upstream_standing{upstream="b",standing="drained"}': "1x60",
        },
        {"upstream": "a"},
    ),
    "HealthPathWrong": one('gateway_upstream_wrong_health_path{upstream="a"}', 1, 0, upstream="a"),
    "EngineNamesAnotherModel": rises('gateway_model_mismatch_total{upstream="a",model="m"}', upstream="a", model="m"),
    "EngineFails": Case(calls(101), calls(100), {"upstream": "a"}),
    "EngineRejectsGateway": rises('gateway_upstream_auth_total{upstream="a"}', upstream="a"),
    "EngineIgnoresCap": rises('gateway_cap_ignored_total{upstream="a"}', upstream="a"),
    "CancelUnconfirmed": Case(
        {'gateway_cancellations_total{upstream="a",result="unconfirmed"}': "0x15 1x45"},
        {'gateway_cancellations_total{upstream="a",result="unconfirmed"}': "1x60", 'gateway_cancellations_total{upstream="a",result="unknown"}': "0+1x60"},
        {"upstream": "a", "result": "unconfirmed"},
    ),
    "LedgerNotWritable": one("gateway_ledger_writable", 0, 1),
    "LedgerCommitSlow": Case(commits(11), commits(9), {"instance": "g"}),
    "LedgerStuck": one("gateway_ledger_lag_seconds", 5.1, 5),
    "LedgerCommitFailed": rises("gateway_ledger_commit_failures_total"),
    "LedgerDiskFills": Case(
        of("gateway_ledger_free_bytes", 1999, "gateway_ledger_min_free_bytes", 1000),
        of("gateway_ledger_free_bytes", 2000, "gateway_ledger_min_free_bytes", 1000),
        {"instance": "g"},
    ),
    "ClockInDoubt": one("gateway_ledger_clock_certain", 0, 1),
    "UnknownUsage": Case(unknown(21), unknown(20), {"model": "m"}),
    "CountDrift": rises('gateway_count_drift_total{model="m"}', model="m"),
    "MeterFault": rises('gateway_meter_faults_total{model="m"}', model="m"),
    "CallsUnmeasured": rises('gateway_unmeasured_calls_total{upstream="a"}', upstream="a"),
    "Overshoot": Case(
        {'gateway_overshoot_tokens_total{model="m",kind="output"}': "0x15 1100x45"},
        {'gateway_overshoot_tokens_total{model="m",kind="output"}': "0x15 900x45"},
        {"model": "m", "kind": "output"},
    ),
    "BudgetNearlySpent": Case(
        of("gateway_budget_settled", 901, "gateway_budget_ceiling", 1000, LIMIT),
        of("gateway_budget_settled", 900, "gateway_budget_ceiling", 1000, LIMIT),
        {"campaign": "c", "limit": "campaign.output_tokens", "quantity": "output_tokens"},
    ),
    "QueueFull": Case(
        {**of("gateway_waiting_calls", 500, "gateway_queue_limit", 1000), 'gateway_waiting_calls{instance="g",reason="limit"}': "301x60"},
        {**of("gateway_waiting_calls", 500, "gateway_queue_limit", 1000), 'gateway_waiting_calls{instance="g",reason="limit"}': "300x60"},
        {"instance": "g"},
    ),
    "CallsOverloaded": Case(
        {'gateway_refusals_total{code="overloaded"}': "0x18 1x45"},
        {'gateway_refusals_total{code="overloaded"}': "1x60", 'gateway_refusals_total{code="busy"}': "0+1x60"},
        {"code": "overloaded"},
    ),
    "CallsWaitLong": one("gateway_waiting_longest_seconds", 60.5, 60),
    "ReconciliationUnexplained": one('gateway_reconciliation_unexplained{campaign="c"}', 1, 0, campaign="c"),
    "BodiesNotKept": Case(
        {'gateway_captured_bodies_total{result="full"}': "0x15 1x45"},
        {'gateway_captured_bodies_total{result="full"}': "1x60", 'gateway_captured_bodies_total{result="kept"}': "0+1x60"},
        {"result": "full"},
    ),
    "ManyUnknownKeys": Case({"gateway_unauthorized_total": "0+61x60"}, {"gateway_unauthorized_total": "0+60x60"}),
    "OpenFilesNearlyUsedUp": Case(
        of("process_open_fds", 81, "process_max_fds", 100, PROCESS), of("process_open_fds", 80, "process_max_fds", 100, PROCESS), {"job": "gateway"}
    ),
    "CampaignsWithoutSeries": Case(
        {'gateway_campaigns{instance="g",state="open"}': "50x60", 'gateway_campaigns{instance="g",state="halted"}': "1x60"},
        {'gateway_campaigns{instance="g",state="open"}': "49x60", 'gateway_campaigns{instance="g",state="halted"}': "1x60"},
        {"instance": "g"},
    ),
}
ALERTS: dict[str, Any] = {rule["alert"]: rule for rule in promql.rules(promql.ALERTS)}


def promtool(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False)


def test_each_alert_has_its_case() -> None:
    assert set(CASES) == set(ALERTS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rules")
    for path in (promql.RULES, promql.ALERTS):
        shutil.copy(path, made)
    return made


def judged(folder: Path, name: str, series: Series, at: str, fires: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    told = {
        "rule_files": [promql.RULES.name, promql.ALERTS.name],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": each, "values": values} for each, values in series.items()],
                "alert_rule_test": [{"eval_time": at, "alertname": name, "exp_alerts": fires}],
            }
        ],
    }
    path = folder / f"{name}.yml"
    path.write_text(yaml.safe_dump(told))
    return promtool("test", "rules", path, cwd=folder)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_fires_and_keeps_still_one_below(folder: Path, name: str) -> None:
    case, rule = CASES[name], ALERTS[name]
    still = judged(folder, name, case.still, case.at, [])
    assert still.returncode == 0, still.stdout + still.stderr
    silent = judged(folder, name, case.fires, case.at, [])
    assert silent.returncode == 1, "it does not fire"
    labels = {**rule["labels"], **case.labels}
    # The words hold the value, in Prometheus' own form: what was said is asked for again, so the labels alone are compared.
    said = yaml.safe_load(_got(silent.stdout + silent.stderr))
    assert said == labels, said


def _got(output: str) -> str:
    """The labels in promtool's words on what it had not been told of: `got:[ 0: Labels:{a="b"} …`."""
    found = output[output.index("got:") :]
    inside = found[found.index("Labels:{") + len("Labels:{") :].split("}")[0]
    pairs = [pair.partition("=") for pair in inside.split(", ")]
    return "\n".join(f"{name}: {value}" for name, _, value in pairs if name != "alertname")


def test_prometheus_takes_configuration_and_rules() -> None:
    for arguments in (("check", "config", "prometheus.yml"), ("check", "rules", "rules.yml", "alerts.yml")):
        done = promtool(*arguments, cwd=promql.ROOT / "prometheus")
        assert done.returncode == 0, done.stdout + done.stderr
