"""Writes the dashboards' JSON: `python -m dashboards.make`."""

from __future__ import annotations

from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.budgets import budgets
from dashboards.engines import engines
from dashboards.overview import overview
from dashboards.reliability import reliability

FOLDER = Path(__file__).parent / "grafana" / "dashboards"
DASHBOARDS = {"overview": overview, "budgets": budgets, "engines": engines, "reliability": reliability}


def written() -> dict[Path, str]:
    return {FOLDER / f"{name}.json": JSONEncoder(sort_keys=True, indent=1).encode(make().build()) + "\n" for name, make in DASHBOARDS.items()}


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text)
        print(f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}: {len(text)} bytes")
