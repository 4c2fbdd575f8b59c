"""What is measured while the gateway runs. Labels come from configuration, never from what an agent sends, so the number of series is bounded."""

from __future__ import annotations

from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
FINE_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """One registry a gateway, so that two in one process (tests) don't add up."""

    def __init__(self) -> None:
        r = self.registry = CollectorRegistry()
        self.calls = Counter("gateway_calls", "Calls that were sent to an engine, by how they ended.", ["model", "outcome"], registry=r)
        self.tokens = Counter(
            "gateway_tokens", "Known tokens of settled calls, by kind and by where the number came from.", ["model", "kind", "source"], registry=r
        )
        self.charged = Counter("gateway_charged_tokens", "Tokens charged to limits.", ["model", "kind"], registry=r)
        self.unknown = Counter("gateway_unknown_usage", "Settled calls of which a token count is unknown.", ["model", "kind"], registry=r)
        self.refusals = Counter("gateway_refusals", "Calls that were not admitted, by code.", ["code"], registry=r)
        self.warnings = Counter("gateway_warnings", "Limits of runs of which little was left, by limit.", ["limit"], registry=r)
        self.limit_refusals = Counter("gateway_limit_refusals", "Final refusals, by the limit that stood in the way.", ["limit"], registry=r)
        self.clamps = Counter("gateway_clamps", "Calls that were sent with less output than they wanted, by limit.", ["limit"], registry=r)
        self.unauthorized = Counter("gateway_unauthorized", "Requests without a known key.", registry=r)
        self.undeclared = Counter("gateway_undeclared", "Requests for a method and path that is not declared.", registry=r)
        self.faults = Counter("gateway_meter_faults", "Events on which a reader choked.", ["model"], registry=r)
        self.drifts = Counter("gateway_count_drift", "Prompt counts that were to be exact and differed from the engine's report.", ["model"], registry=r)
        self.overshoots = Counter("gateway_overshoot", "Calls that were charged more than they had reserved.", ["model"], registry=r)
        self.overshot_tokens = Counter("gateway_overshoot_tokens", "Tokens charged above what was reserved.", ["model", "kind"], registry=r)
        self.cancellations = Counter(
            "gateway_cancellations", "Calls that were left before their end, by what the engine said a while later.", ["upstream", "result"], registry=r
        )
        self.captured = Counter("gateway_captured_bodies", "Bodies that a policy wants kept, by what became of them.", ["result"], registry=r)
        self.waiting = Gauge("gateway_waiting_calls", "Calls in the waiting place.", registry=r)
        self.in_flight = Gauge("gateway_in_flight_calls", "Calls from admission to settlement.", registry=r)
        self.slots_busy = Gauge("gateway_slots_busy", "Slots taken, by upstream.", ["upstream"], registry=r)
        self.waited = Histogram("gateway_waited_seconds", "Time from arrival in the waiting place to admission.", ["model"], buckets=SECONDS, registry=r)
        self.first_token = Histogram(
            "gateway_time_to_first_token_seconds", "From sending a call to the first content of its answer.", ["model"], buckets=SECONDS, registry=r
        )
        self.overhead = Histogram(
            "gateway_overhead_seconds", "The gateway's own share of a call: neither waiting nor the engine.", buckets=FINE_SECONDS, registry=r
        )
        self.commit = Histogram("gateway_ledger_commit_seconds", "One durable commit of the ledger.", buckets=FINE_SECONDS, registry=r)

        for metric in (self.calls, self.tokens, self.charged, self.unknown, self.waited, self.first_token):
            metric.labels = cache(metric.labels)  # type: ignore[assignment]  # a child is found at a tenth of the price

    def render(self) -> bytes:
        """The Prometheus text format, UTF-8."""
        return generate_latest(self.registry)
