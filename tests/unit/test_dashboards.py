"""Dashboards, rules and alerts: as made, asking only for what is measured, and each with its mend. Whether they have data is shown by `make dashboards`."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from dashboards.make import written
from gateway.cli.root import root
from gateway.metrics.metrics import Metrics
from tests.support import promql

LABELS_OF_PROMETHEUS = {"job", "instance", "le"}
BESIDE = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds"}
"""Of Prometheus itself, and of any process."""
ASKED = [*promql.asked_by_panels(), *promql.asked_by_rules()]
RECORDED = {str(rule["record"]) for rule in promql.rules(promql.RULES)}


def series() -> dict[str, set[str]]:
    """What can be asked for, with its labels."""
    suffixes = {"counter": ("_total",), "info": ("_info",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    return {each.name + suffix: set(each.label_names) for each in Metrics().families for suffix in suffixes[each.kind]}


@pytest.mark.parametrize("path", promql.DASHBOARDS, ids=lambda path: path.stem)
def test_the_committed_json_is_what_is_made(path: Path) -> None:
    assert path.read_text() == written()[path], "`python -m dashboards.make` writes it anew"


def test_each_dashboard_is_committed() -> None:
    assert sorted(written()) == promql.DASHBOARDS


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.where)
def test_an_expression_asks_for_what_is_measured(asked: promql.Asked) -> None:
    known = series()
    found = promql.selectors(asked.filled("1m"))
    assert found or asked.expr == "vector(0)"
    for name, labels in found:
        if name in RECORDED:
            continue
        assert name in known or name in BESIDE, name
        assert labels <= known.get(name, set()) | LABELS_OF_PROMETHEUS, (name, labels)


@pytest.mark.parametrize("path", promql.DASHBOARDS, ids=lambda path: path.stem)
def test_each_panel_says_what_it_shows(path: Path) -> None:
    titles = [panel["title"] for panel in promql.panels(path)]
    assert len(set(titles)) == len(titles)
    for panel in promql.panels(path):
        assert panel["description"].endswith(".") and panel["targets"], panel["title"]
        assert panel["fieldConfig"]["defaults"].get("unit") or panel["type"] == "state-timeline", panel["title"]
        assert all(target["expr"] and target.get("refId", "") is not None for target in panel["targets"])


def test_each_metric_is_on_a_dashboard_or_in_a_rule_or_left_out_for_a_reason() -> None:
    left_out = {
        "gateway_build": "for people who ask which version runs",
        "gateway_upstream_state": "gateway_upstream_standing says what follows from it",
        "gateway_ledger_bytes": "grows without harm; the disk's room is shown",
        "gateway_overshoot": "its tokens are shown",
    }
    asked = {name for each in ASKED for name, _ in promql.selectors(each.filled("1m"))}
    shown = {each.name for each in Metrics().families if any(name.startswith(each.name) and name.removeprefix(each.name) in SUFFIXES for name in asked)}
    assert {each.name for each in Metrics().families} - shown == set(left_out)


SUFFIXES = {"", "_total", "_bucket", "_sum", "_count", "_info"}


def test_each_alert_says_what_is_so_and_what_to_do() -> None:
    names = [rule["alert"] for rule in promql.rules(promql.ALERTS)]
    assert len(names) == len(set(names))
    for rule in promql.rules(promql.ALERTS):
        assert set(rule["annotations"]) == {"description", "mend"}, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert len(rule["annotations"]["mend"]) > 40


def test_a_command_that_a_mend_names_is_there() -> None:
    told = "\n".join([promql.ALERTS.read_text(), *(path.read_text() for path in promql.DASHBOARDS)])
    found = set(re.findall(r"`gateway ((?:[a-z]+[ `])+)", told))
    assert len(found) > 5
    for words in found:
        command: click.Command | None = root
        for word in words.strip("`").split():
            assert isinstance(command, click.Group), words
            command = command.get_command(click.Context(command), word)
            assert command is not None, words


def test_each_alert_stands_in_the_document() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (promql.ROOT.parent / "docs" / "dashboards.md").read_text(), re.MULTILINE)
    assert rows == [rule["alert"] for rule in promql.rules(promql.ALERTS)]
