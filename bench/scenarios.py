"""What is measured: loads by name, in sets, and what of each load stands in the table."""

from __future__ import annotations

from dataclasses import dataclass

WHOLE = "bench-whole"
SLOW = "bench-stream-1000x1000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row of the table."""

    title: str
    key: str
    more_is_better: bool = False
    compared: bool = True
    """Whether a ratio to other targets says something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    callers: int
    size: str
    model: str
    figures: tuple[Figure, ...]
    ramp_s: float = 1.0
    """Streams are started evenly over this time."""
    skip_s: float = 0.0
    """What comes before is not counted, nor what it costs to break the streams off: neither is an event's."""
    seconds: int | None = None
    """At least so long, whatever was asked for."""
    weighs: bool = False
    """Whether memory is read while it runs."""
    once: bool = False
    """In the first round only: it does not get more exact by repetition."""

    @property
    def streams(self) -> bool:
        return self.model != WHOLE


RATE = Figure(title="calls/s", key="calls_per_s", more_is_better=True)
P50 = Figure(title="p50 ms", key="p50_ms")
P99 = Figure(title="p99 ms", key="p99_ms")
CPU_CALL = Figure(title="CPU µs a call", key="cpu_us")
CHUNKS = Figure(title="chunks/s", key="chunks_per_s", more_is_better=True)
DELAY50 = Figure(title="delay p50 ms", key="delay_p50_ms")
DELAY99 = Figure(title="delay p99 ms", key="delay_p99_ms")
FIRST50 = Figure(title="first chunk p50 ms", key="first_p50_ms")
CPU_CHUNK = Figure(title="CPU µs a chunk", key="cpu_us")
OPEN = Figure(title="streams that got a chunk", key="open", more_is_better=True, compared=False)
RSS = Figure(title="RSS MB", key="rss_mb")

ROUNDS_S = 6
"""LiteLLM answers 32 callers by rounds of half a second: in a shorter load its rate goes by steps of a fifth."""

LASTING = (CHUNKS, DELAY50, DELAY99, CPU_CHUNK)
PACED = (CHUNKS, DELAY50, DELAY99, FIRST50, CPU_CHUNK)

SETS: dict[str, tuple[Scenario, ...]] = {
    "calls": (
        Scenario(name="lone call, 2 kB", callers=1, size="2kB", model=WHOLE, figures=(RATE, P50, P99, CPU_CALL)),
        Scenario(name="lone call, 60 kB", callers=1, size="60kB", model=WHOLE, figures=(P50, P99)),
        Scenario(name="32 callers, 2 kB", callers=32, size="2kB", model=WHOLE, figures=(RATE, P50, P99, CPU_CALL), seconds=ROUNDS_S),
        Scenario(name="32 callers, 60 kB", callers=32, size="60kB", model=WHOLE, figures=(RATE, P50, P99, CPU_CALL), seconds=ROUNDS_S),
        Scenario(name="32 callers, 400 kB", callers=32, size="400kB", model=WHOLE, figures=(RATE, P50, P99, CPU_CALL), seconds=ROUNDS_S),
    ),
    "streams": (
        Scenario(name="16 streams, unpaced", callers=16, size="2kB", model="bench-stream-200x0", figures=(CHUNKS, CPU_CHUNK), ramp_s=0),
        Scenario(name="100 streams, 50/s each", callers=100, size="2kB", model="bench-stream-100x20", figures=PACED, seconds=5, skip_s=1),
        Scenario(name="100 long streams, 50/s each", callers=100, size="2kB", model="bench-stream-1000x20", figures=LASTING, seconds=6, skip_s=2),
        Scenario(name="100 streams, 50/s, in step", callers=100, size="2kB", model="bench-step-100x20", figures=LASTING[1:], seconds=5, skip_s=1),
    ),
    "open": (
        Scenario(name="100 open streams", callers=100, size="2kB", model=SLOW, figures=(OPEN, RSS), seconds=5, weighs=True, once=True),
        Scenario(
            name="1,000 open streams",
            callers=1000,
            size="2kB",
            model=SLOW,
            figures=(OPEN, DELAY99, RSS),
            ramp_s=4,
            seconds=10,
            weighs=True,
            once=True,
        ),
    ),
}
IDLE = Figure(title="RSS MB", key="rss_mb")
MODELS = tuple(dict.fromkeys(scenario.model for scenarios in SETS.values() for scenario in scenarios))
