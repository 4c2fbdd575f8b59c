"""Plain numbers that become Prometheus families when they are read: an addition costs what an addition costs.

Rule: used from the loop's thread alone, as their reader is; who counts on another thread brings a lock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric

Values = tuple[str, ...]
"""Of labels, in the order of their names."""
Rows = Iterable[tuple[Values, float]]


class Count:
    """One series that only rises."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, by: float = 1) -> None:
        self.value += by


class Spread:
    """One series of a histogram."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        found, below = [], 0
        for bound, count in zip((*map(_written, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            found.append((bound, float(below)))
        return found


class Counter:
    """Series that only rise, by their labels. Its name goes without `_total`."""

    kind = "counter"

    def __init__(self, name: str, documentation: str, labels: Sequence[str] = ()) -> None:
        self.name, self.documentation, self.label_names = name, documentation, tuple(labels)
        self._series: dict[Values, Count] = {} if labels else {(): Count()}

    def labels(self, *values: str) -> Count:
        found = self._series.get(values)
        if found is None:
            found = self._series[values] = Count()
        return found

    def inc(self, by: float = 1) -> None:
        """Of one without labels."""
        self._series[()].value += by

    def family(self) -> Metric:
        family = CounterMetricFamily(self.name, self.documentation, labels=self.label_names)
        for values, count in self._series.items():
            family.add_metric(values, count.value)
        return family


class Histogram:
    kind = "histogram"

    def __init__(self, name: str, documentation: str, labels: Sequence[str] = (), *, bounds: Sequence[float]) -> None:
        self.name, self.documentation, self.label_names, self.bounds = name, documentation, tuple(labels), tuple(bounds)
        self._series: dict[Values, Spread] = {} if labels else {(): Spread(self.bounds)}

    def labels(self, *values: str) -> Spread:
        found = self._series.get(values)
        if found is None:
            found = self._series[values] = Spread(self.bounds)
        return found

    def observe(self, value: float) -> None:
        """Of one without labels."""
        self._series[()].observe(value)

    def family(self) -> Metric:
        family = HistogramMetricFamily(self.name, self.documentation, labels=self.label_names)
        for values, spread in self._series.items():
            family.add_metric(values, spread.buckets(), spread.total)
        return family


class Level:
    """What is so at the moment of reading: `read` is asked then, so that what is gone leaves no series."""

    kind = "gauge"

    def __init__(self, name: str, documentation: str, labels: Sequence[str] = ()) -> None:
        self.name, self.documentation, self.label_names = name, documentation, tuple(labels)
        self.read: Callable[[], Rows] = tuple
        """Nothing, until somebody knows."""

    def family(self) -> Metric:
        family = GaugeMetricFamily(self.name, self.documentation, labels=self.label_names)
        for values, value in self.read():
            family.add_metric(values, value)
        return family


class Info:
    """One series whose labels are all that it says."""

    kind = "info"

    def __init__(self, name: str, documentation: str, told: dict[str, str]) -> None:
        self.name, self.documentation, self.label_names, self._told = name, documentation, tuple(told), told

    def family(self) -> Metric:
        return InfoMetricFamily(self.name, self.documentation, value=self._told)


Family = Counter | Histogram | Level | Info


class Collected:
    """What Prometheus' client asks for families."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return (each.family() for each in self._families)


def _written(bound: float) -> str:
    return f"{float(bound)}"
