"""From measurements to what is printed: the figures, this gateway's ratios to the others, and what was wanted."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from measuring import Measurement
from scenarios import Figure, Scenario

OURS = "gateway-"


class Results:
    """All measurements of a run; of each figure the median over its least disturbed ones."""

    def __init__(self, rows: Sequence[Measurement], scenarios: Sequence[Scenario], targets: Sequence[str], disturbed: float) -> None:
        self.rows = rows
        self.scenarios = scenarios
        self.targets = targets
        self._disturbed = disturbed

    def value(self, target: str, scenario: str, key: str) -> float | None:
        found = [row for row in self.rows if row.target == target and row.scenario == scenario and key in row.values]
        calm = [row for row in found if row.others <= self._disturbed] or sorted(found, key=lambda row: row.others)[:1]
        return statistics.median(row.values[key] for row in calm) if calm else None

    def pairs(self, ours: str, other: str, scenario: str, key: str) -> list[tuple[float, float]]:
        """Our figure and the other's, by round: a machine that is slow for a minute is so for both."""
        by_round = [{row.target: row.values[key] for row in self._calm(scenario, key) if row.round == number} for number in {row.round for row in self.rows}]
        return [(found[ours], found[other]) for found in by_round if ours in found and other in found] or self._apart(ours, other, scenario, key)

    def _calm(self, scenario: str, key: str) -> list[Measurement]:
        return [row for row in self.rows if row.scenario == scenario and key in row.values and row.others <= self._disturbed]

    def _apart(self, ours: str, other: str, scenario: str, key: str) -> list[tuple[float, float]]:
        """Where no round was calm for both."""
        one, two = self.value(ours, scenario, key), self.value(other, scenario, key)
        return [] if one is None or two is None else [(one, two)]

    def doubtful(self, target: str, scenario: str) -> bool:
        found = [row for row in self.rows if row.target == target and row.scenario == scenario]
        return bool(found) and (all(row.others > self._disturbed for row in found) or any(row.problem for row in found))

    def figures(self) -> list[tuple[str, Figure]]:
        return [(scenario.name, figure) for scenario in self.scenarios for figure in scenario.figures]


def table(results: Results) -> str:
    lines = [["", *results.targets]]
    for scenario, figure in results.figures():
        cells = [_cell(results.value(target, scenario, figure.key), results.doubtful(target, scenario)) for target in results.targets]
        lines.append([f"{scenario}: {figure.title}", *cells])
    return _markdown(lines)


def ratios(results: Results) -> str:
    ours = [name for name in results.targets if name.startswith(OURS)]
    others = [name for name in results.targets if name not in ours]
    if not ours or not others:
        return ""
    lines = [["", *(f"{our} / {other}" for our in ours for other in others)]]
    for scenario, figure in results.figures():
        if not figure.compared:
            continue
        pairs = [results.pairs(our, other, scenario, figure.key) for our in ours for other in others]
        lines.append([f"{scenario}: {figure.title}", *(f"{statistics.median(one / two for one, two in found):.3g}" if found else "" for found in pairs)])
    return _markdown(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    text: str
    scenario: str
    key: str
    other: str
    bound: Callable[[float], float]
    """From the other's figure to ours."""
    more_is_better: bool = False


def _at_least(factor: float, other: str, scenario: str) -> Wanted:
    text = f"calls/s ≥ {factor:g} × {other}"
    return Wanted(text=text, scenario=scenario, key="calls_per_s", other=other, bound=lambda value: factor * value, more_is_better=True)


WANTED = (
    _at_least(20, "litellm", "32 callers, 2 kB"),
    _at_least(20, "litellm", "32 callers, 60 kB"),
    _at_least(1, "rolter", "32 callers, 60 kB"),
    _at_least(1, "rolter", "32 callers, 400 kB"),
    Wanted(text="p50 ms ≤ nginx + 2", scenario="lone call, 2 kB", key="p50_ms", other="nginx", bound=lambda value: value + 2),
    Wanted(text="delay p99 ms ≤ direct + 2", scenario="100 streams, 50/s each", key="delay_p99_ms", other="direct", bound=lambda value: value + 2),
    Wanted(text="CPU µs a chunk ≤ 2 × nginx", scenario="100 long streams, 50/s each", key="cpu_us", other="nginx", bound=lambda value: 2 * value),
    Wanted(text="RSS MB ≤ 160", scenario="1,000 open streams", key="rss_mb", other="", bound=lambda _value: 160),
)


def verdicts(results: Results) -> str:
    """Of the rounds the middle one decides: that in which the figure was so far from its bound."""
    lines = [["wanted", "of", "bound", "found", ""]]
    for wanted in WANTED:
        for our in (name for name in results.targets if name.startswith(OURS)):
            pairs = results.pairs(our, wanted.other or our, wanted.scenario, wanted.key)
            if not pairs:
                continue
            found, bound = _middle([(one, wanted.bound(two)) for one, two in pairs])
            held = found >= bound if wanted.more_is_better else found <= bound
            lines.append([f"{wanted.scenario}: {wanted.text}", our, _cell(bound), _cell(found), "held" if held else "MISSED"])
    return _markdown(lines)


def _middle(rounds: list[tuple[float, float]]) -> tuple[float, float]:
    return sorted(rounds, key=lambda pair: pair[0] / pair[1])[len(rounds) // 2]


def problems(results: Results) -> str:
    said = dict.fromkeys(f"{row.target}, {row.scenario}: {row.problem}" for row in results.rows if row.problem)
    return "\n".join(f"* {line}" for line in said)


def _cell(value: float | None, doubtful: bool = False) -> str:
    if value is None:
        return "–"
    text = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return text + (" ?" if doubtful else "")


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    padded = ["| " + " | ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) + " |" for line in lines]
    rule = "|" + "|".join("-" * (width + 1) + ("-" if not place else ":") for place, width in enumerate(widths)) + "|"
    return "\n".join([padded[0], rule, *padded[1:]])
