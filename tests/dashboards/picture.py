"""Draws panels as Grafana would, roughly, from Prometheus' own answers: for the documents, where no Grafana runs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from tests.dashboards.prometheus import Prometheus
from tests.support import promql

COLUMNS, WIDTH, UNIT, GAP = 24, 1200, 34, 8
COLORS = ("#73bf69", "#5794f2", "#f2cc0c", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#c0d8ff", "#ffa6b0", "#96d98d")
NAMED = {
    "green": "#37872d",
    "light-green": "#96d98d",
    "yellow": "#b88a00",
    "orange": "#c2570c",
    "red": "#c4162a",
    "dark-red": "#8f1222",
    "blue": "#3274d9",
    "light-blue": "#8ab8ff",
}
INK, DIM, PAPER, FRAME, GRID = "#ccccdc", "#8e8e9e", "#111217", "#181b1f", "#2c3036"


def draw(path: Path, prometheus: Prometheus, begin: float, end: float, window: str, name: str = "overview") -> None:
    dashboard = next(each for each in promql.DASHBOARDS if each.stem == name)
    drawn, lowest = [], 0.0
    for title, top in ((panel["title"], panel["gridPos"]["y"]) for panel in json.loads(dashboard.read_text())["panels"] if panel["type"] == "row"):
        drawn.append(_text(GAP + 2, top * UNIT + 24, f"\u25be  {title}", size=15, weight=600))
    for panel in promql.panels(dashboard):
        box = panel["gridPos"]
        x, y = box["x"] * (WIDTH - GAP) / COLUMNS + GAP, box["y"] * UNIT + GAP
        width, height = box["w"] * (WIDTH - GAP) / COLUMNS - GAP, box["h"] * UNIT - GAP
        lowest = max(lowest, y + height)
        answers = [_answer(prometheus, panel, target, begin, end, window) for target in panel["targets"]]
        series = [each for answer in answers for each in answer]
        drawn.append(f'<g transform="translate({x:.1f} {y:.1f})"><rect width="{width:.1f}" height="{height:.1f}" rx="3" fill="{FRAME}"/>')
        drawn.append(_text(10, 19, panel["title"], size=13, weight=600))
        draws = {"stat": _number, "bargauge": _bars}.get(panel["type"], _curves)
        drawn += [*draws(panel, series, width, height), "</g>"]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {lowest + GAP:.0f}" font-family="Inter, Helvetica, Arial, sans-serif">'
    path.write_text("\n".join([head, f'<rect width="100%" height="100%" fill="{PAPER}"/>', *drawn, "</svg>"]) + "\n")


Series = tuple[str, list[tuple[float, float]]]


def _answer(prometheus: Prometheus, panel: dict[str, Any], target: dict[str, Any], begin: float, end: float, window: str) -> list[Series]:
    expr = promql.Asked("", target["expr"]).filled(window)
    found = []
    for series in prometheus.ask_over(expr, begin, end):
        points = [(at, float(value)) for at, value in series["values"] if value not in ("NaN", "+Inf", "-Inf")]
        legend = target.get("legendFormat") or ""
        for label, value in series["metric"].items():
            legend = legend.replace("{{" + label + "}}", value)
        if points:
            found.append((re.sub(r"\{\{\w+\}\}|__auto", "", legend).strip(), points))
    return found


def _text(x: float, y: float, text: str, *, size: float = 11, fill: str = INK, anchor: str = "start", weight: int = 400) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'


def _said(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit in ("s", "reqps"):
        suffix = " s" if unit == "s" else "/s"
        return f"{value * 1000:.3g} ms" if unit == "s" and value < 1 else f"{value:.3g}{suffix}"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _step(panel: dict[str, Any], value: float) -> str:
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    return next(NAMED.get(step["color"], COLORS[1]) for step in reversed(steps) if step["value"] is None or value >= step["value"])


def _number(panel: dict[str, Any], series: Sequence[Series], width: float, height: float) -> list[str]:
    if not series:
        return [_text(width / 2, height / 2, "no data", fill=DIM, anchor="middle")]
    value, unit = series[0][1][-1][1], panel["fieldConfig"]["defaults"].get("unit", "")
    words = [entry for mapping in panel["fieldConfig"]["defaults"].get("mappings") or () for entry in mapping["options"].items()]
    word = next((told for key, told in words if float(key) == value), None)
    fill = NAMED[word["color"]] if word else _step(panel, value)
    back = f'<rect x="6" y="28" width="{width - 12:.1f}" height="{height - 34:.1f}" rx="3" fill="{fill}"/>'
    return [
        back,
        _text(width / 2, 28 + (height - 34) / 2 + 12, word["text"] if word else _said(value, unit), size=32, anchor="middle", weight=600, fill="#ffffff"),
    ]


def _bars(panel: dict[str, Any], series: Sequence[Series], width: float, height: float) -> list[str]:
    rows, unit = sorted(((name, points[-1][1]) for name, points in series), key=lambda row: -row[1])[:10], panel["fieldConfig"]["defaults"].get("unit", "")
    if not rows:
        return [_text(width / 2, height / 2, "no data", fill=DIM, anchor="middle")]
    most, pitch, left = max(1.0, *(value for _, value in rows)), (height - 36) / max(6, len(rows)), width * 0.5
    drawn = []
    for place, (name, value) in enumerate(rows):
        y = 30 + place * pitch
        room = width - left - 70
        drawn.append(f'<rect x="{left:.1f}" y="{y + 2:.1f}" width="{room:.1f}" height="{pitch - 5:.1f}" fill="{GRID}"/>')
        drawn.append(
            f'<rect x="{left:.1f}" y="{y + 2:.1f}" width="{max(1.0, room * value / most):.1f}" height="{pitch - 5:.1f}" fill="{_step(panel, value)}"/>'
        )
        drawn += [_text(left - 6, y + pitch / 2 + 3, name, anchor="end"), _text(width - 8, y + pitch / 2 + 3, _said(value, unit), anchor="end", weight=600)]
    return drawn


def _curves(panel: dict[str, Any], series: Sequence[Series], width: float, height: float) -> list[str]:
    if not series:
        return [_text(width / 2, height / 2, "no data", fill=DIM, anchor="middle")]
    defaults = panel["fieldConfig"]["defaults"]
    unit, stacked = defaults.get("unit", ""), (defaults["custom"].get("stacking") or {}).get("mode") == "normal"
    fixed = {}
    for each in panel["fieldConfig"].get("overrides") or ():
        for told in each["properties"]:
            if told["id"] == "color" and told["value"]["fixedColor"] in NAMED:
                fixed[each["matcher"]["options"]] = NAMED[told["value"]["fixedColor"]]
    series = sorted(series, key=lambda each: -max(value for _, value in each[1]))[:10]
    times = sorted({at for _, points in series for at, _ in points})
    left, top, right, bottom = 56.0, 32.0, width - 12, height - 22 - 15 * ((len(series) + 2) // 3)
    below = dict.fromkeys(times, 0.0)
    lines: list[tuple[str, list[tuple[float, float, float]]]] = []
    for name, points in series:
        line = []
        for at, value in points:
            base = below[at] if stacked else 0.0
            line.append((at, base, base + value))
            if stacked:
                below[at] = base + value
        lines.append((name, line))
    most = max((upper for _, line in lines for _, _, upper in line), default=1.0) * 1.08 or 1.0
    span = max(1.0, times[-1] - times[0])

    def place(at: float, value: float) -> str:
        return f"{left + (at - times[0]) / span * (right - left):.1f},{bottom - value / most * (bottom - top):.1f}"

    drawn = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = bottom - share * (bottom - top)
        drawn += [
            f'<path d="M{left} {y:.1f}H{right:.1f}" stroke="{GRID}"/>',
            _text(left - 6, y + 4, _said(most * share, unit), fill=DIM, anchor="end", size=10),
        ]
    for number, (name, line) in enumerate(lines):
        color = fixed.get(name, COLORS[number % len(COLORS)])
        upper = " ".join(place(at, high) for at, _, high in line)
        if stacked:
            lower = " ".join(place(at, low) for at, low, _ in reversed(line))
            drawn.append(f'<polygon points="{upper} {lower}" fill="{color}" fill-opacity="0.45"/>')
        if any(high > low for _, low, high in line):
            drawn.append(f'<polyline points="{upper}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        x, y = 12 + (number % 3) * (width - 20) / 3, bottom + 22 + 15 * (number // 3)
        last = line[-1][2] - line[-1][1]
        drawn += [f'<rect x="{x:.1f}" y="{y - 7:.1f}" width="12" height="4" fill="{color}"/>', _text(x + 17, y, f"{name}  {_said(last, unit)}", size=10)]
    return drawn
