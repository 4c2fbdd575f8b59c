"""What dashboards and rules ask Prometheus for: every expression with where it stands, and the series that it names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser
import yaml

ROOT = Path(__file__).parents[2] / "dashboards"
DASHBOARDS = sorted((ROOT / "grafana" / "dashboards").glob("*.json"))
RULES = ROOT / "prometheus" / "rules.yml"
ALERTS = ROOT / "prometheus" / "alerts.yml"


@dataclass(frozen=True, slots=True)
class Asked:
    """One expression; `where` names its dashboard and panel, or its rule."""

    where: str
    expr: str
    legend: str = ""
    instant: bool = True

    def filled(self, window: str) -> str:
        """With what Grafana would put in for its variables, all being chosen."""
        found = self.expr.replace("$__rate_interval", window)
        for variable in ("campaign", "lane", "upstream", "model"):
            found = found.replace(f"${variable}", ".*")
        return found


def panels(path: Path) -> Iterator[dict[str, Any]]:
    """All that draw something, those of rows too."""
    for panel in json.loads(path.read_text())["panels"]:
        yield from panel.get("panels") or ()
        if panel["type"] != "row":
            yield panel


def asked_by_panels() -> list[Asked]:
    return [
        Asked(f"{path.stem}: {panel['title']}", target["expr"], target.get("legendFormat", ""), bool(target.get("instant")))
        for path in DASHBOARDS
        for panel in panels(path)
        for target in panel["targets"]
    ]


def rules(path: Path) -> list[Mapping[str, Any]]:
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def asked_by_rules() -> list[Asked]:
    return [Asked(rule.get("record") or rule["alert"], rule["expr"]) for path in (RULES, ALERTS) for rule in rules(path)]


def selectors(expr: str) -> list[tuple[str, frozenset[str]]]:
    """Names of series, each with the labels that it is chosen by. Raises ValueError for what is no PromQL."""
    return list(_below(promql_parser.parse(expr)))


def _below(node: Any) -> Iterator[tuple[str, frozenset[str]]]:
    if isinstance(node, promql_parser.VectorSelector):
        yield str(node.name), frozenset(matcher.name for matcher in node.matchers.matchers)
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        if (child := getattr(node, name, None)) is not None:
            yield from _below(child)
    for child in getattr(node, "args", None) or ():
        yield from _below(child)
