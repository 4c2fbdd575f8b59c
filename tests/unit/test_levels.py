"""What stands when the metrics are read: of at most fifty open campaigns, and the last reconciliation of each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gateway.dialects import DIALECTS
from gateway.ledger.ledger import Ledger
from gateway.levels import CAMPAIGNS_MAX, Findings, Levels
from gateway.metrics.metrics import Metrics
from gateway.proxy.measured import OPERATIONS
from gateway.settings.settings import Settings
from gateway.upstream.engines import Engines
from gateway.upstream.gate import Gate


def test_a_campaigns_reconciliation_takes_the_place_of_its_runs() -> None:
    findings = Findings()
    findings.note("c1", "r1", {"equal": 3, "differs": 1}, 1)
    findings.note("c1", "r2", {"equal": 2}, 0)
    assert findings.classes("c1") == {"equal": 5, "differs": 1} and findings.unexplained("c1") == 1
    findings.note("c1", "r1", {"equal": 4}, 0)
    assert findings.classes("c1") == {"equal": 6} and findings.unexplained("c1") == 0
    findings.note("c1", "", {"equal": 9, "made_up": 2}, 2)
    assert findings.classes("c1") == {"equal": 9, "other": 2} and findings.unexplained("c1") == 2
    findings.note("c1", "r2", {"equal": 1}, 0)
    assert findings.classes("c1") == {"equal": 1}


def test_what_was_never_reconciled_has_no_number_and_what_is_closed_is_forgotten() -> None:
    findings = Findings()
    assert findings.unexplained("c1") is None
    findings.note("c1", "", {"equal": 1}, 0)
    findings.keep(["c2"])
    assert findings.unexplained("c1") is None


def test_each_format_has_an_operation_of_the_conventions() -> None:
    assert set(DIALECTS) == set(OPERATIONS)
    assert set(OPERATIONS.values()) == {"chat", "text_completion", "embeddings", "rerank"}


def test_at_most_fifty_open_campaigns_are_labels_those_that_were_opened_first() -> None:
    campaigns = [SimpleNamespace(campaign=f"c{number}", serves=number != 3, runs={}) for number in range(60)]
    metrics = Metrics()
    runs: Any = SimpleNamespace(campaigns=lambda: campaigns, gateway_limits_left=tuple, campaign_limits_left=lambda campaign: ())
    other: Any = SimpleNamespace(on_commit=lambda callback: None, upstreams={})
    Levels(metrics, cast(Settings, other), cast(Ledger, other), cast(Gate, other), runs, cast(Engines, other), tuple)
    shown = [labels[0] for labels, _ in metrics.runs.read()]
    assert shown == [f"c{number}" for number in range(51) if number != 3] and len(shown) == CAMPAIGNS_MAX
