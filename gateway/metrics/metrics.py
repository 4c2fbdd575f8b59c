"""All that is measured, each with its labels and what it means; docs/metrics.md says more of each.

Rule: names of the GenAI conventions (v1.41 of OpenTelemetry's) stand for what they say there; all else begins with `gateway_`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from gateway import __version__
from gateway.metrics.sums import Collected, Counter, Family, Histogram, Info, Level, Spread

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
FINE_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
# As the conventions advise, and on from there: a model on one's own machine may read its prompt for minutes.
TOKENS = tuple(4**power for power in range(14))
DURATION_SECONDS = (*(0.01 * 2**power for power in range(14)), 163.84, 327.68, 655.36, 1310.72)
FIRST_TOKEN_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0, 120.0, 300.0)
PER_TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)

GEN_AI = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_response_model", "upstream")
"""Labels of all the conventions' histograms; the upstream's name, where they would have the engine's address."""

_F = TypeVar("_F", bound=Family)


class Metrics:
    """One registry a gateway, so that two in one process (tests) don't add up."""

    def __init__(self) -> None:
        self.families: list[Family] = []
        self._calls: dict[tuple[str, ...], CallSums] = {}
        self.in_flight_now = 0
        self._of_calls()
        self._of_refusals()
        self._of_levels()
        self._of_the_ledger()
        self._of_campaigns()
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(Collected(self.families))
        ProcessCollector(registry=self.registry)

    def of_call(self, *values: str) -> CallSums:
        """By the values of `GEN_AI`."""
        found = self._calls.get(values)
        if found is None:
            found = self._calls[values] = CallSums(self, values)
        return found

    def begin(self, upstreams: Mapping[str, Iterable[str]]) -> None:
        """Upstreams and their models. What an alarm waits for stands at 0 from the start: a series that begins at 1 has not risen, to Prometheus."""
        for upstream, models in upstreams.items():
            for counter in (self.cap_ignored, self.upstream_auth, self.unmeasured):
                counter.labels(upstream)
            for result in ("confirmed", "unconfirmed", "unknown"):
                self.cancellations.labels(upstream, result)
            for reason in ("unreachable", "unsent"):
                self.voids.labels(upstream, reason)
            for model in models:
                self.mismatches.labels(upstream, model)
                self.drifts.labels(model)
                self.faults.labels(model)
                self.overshoots.labels(model)
                for kind in ("input", "output"):
                    self.unknown.labels(model, kind)
                    self.overshot_tokens.labels(model, kind)
        for code in ("overloaded", "ledger_unavailable", "clock", "engine_unavailable", "run_budget_reached"):
            self.refusals.labels(code)
        for result in ("home", "away"):
            self.affinity.labels(result)
        for result in ("kept", "known", "full", "behind", "too_long", "failed"):
            self.captured.labels(result)

    def render(self) -> bytes:
        """The Prometheus text format, UTF-8."""
        return generate_latest(self.registry)

    def _add(self, family: _F) -> _F:
        self.families.append(family)
        return family

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return self._add(Counter(name, documentation, labels))

    def _level(self, name: str, documentation: str, *labels: str) -> Level:
        return self._add(Level(name, documentation, labels))

    def _of_calls(self) -> None:
        histogram, counter = Histogram, self._counter
        self.token_usage = self._add(histogram("gen_ai_client_token_usage", "Known tokens of a settled call.", (*GEN_AI, "gen_ai_token_type"), bounds=TOKENS))
        self.duration = self._add(
            histogram("gen_ai_client_operation_duration_seconds", "From sending a call to its end.", (*GEN_AI, "error_type"), bounds=DURATION_SECONDS)
        )
        self.first_token = self._add(
            histogram(
                "gen_ai_server_time_to_first_token_seconds", "From sending a call to the first content of its stream.", GEN_AI, bounds=FIRST_TOKEN_SECONDS
            )
        )
        self.per_token = self._add(
            histogram("gen_ai_server_time_per_output_token_seconds", "Of a finished stream, for each token after the first.", GEN_AI, bounds=PER_TOKEN_SECONDS)
        )
        self.waited = self._add(histogram("gateway_waited_seconds", "From arrival in the waiting place to admission.", ("model",), bounds=SECONDS))
        self.overhead = self._add(
            histogram("gateway_overhead_seconds", "The gateway's own share of a call: neither waiting nor the engine.", bounds=FINE_SECONDS)
        )
        self.calls = counter("gateway_calls", "Settled calls, by how they ended and by where their usage comes from.", "upstream", "model", "outcome", "source")
        self.tokens = counter("gateway_tokens", "Known tokens of settled calls, by kind and by where the number comes from.", "model", "kind", "source")
        self.charged = counter("gateway_charged_tokens", "Tokens charged to limits.", "model", "kind")
        self.unknown = counter("gateway_unknown_usage", "Settled calls of which a token count is unknown.", "model", "kind")
        self.unmeasured = counter("gateway_unmeasured_calls", "Calls that a fault of the gateway's left without figures: charged whole.", "upstream")
        self.voids = counter("gateway_voids", "Reservations given back, for nothing was sent.", "upstream", "reason")
        self.clamps = counter("gateway_clamps", "Calls that were sent with less output than they wanted, by limit.", "limit")
        self.faults = counter("gateway_meter_faults", "Calls in which the meter could not read an event.", "model")
        self.drifts = counter("gateway_count_drift", "Prompt counts that were to be exact and differed from the engine's report.", "model")
        self.overshoots = counter("gateway_overshoot", "Calls that were charged more than they had reserved.", "model")
        self.overshot_tokens = counter("gateway_overshoot_tokens", "Tokens charged above what was reserved.", "model", "kind")
        self.cap_ignored = counter("gateway_cap_ignored", "Calls whose engine ran past the ceiling that it was sent.", "upstream")
        self.upstream_auth = counter("gateway_upstream_auth", "Calls that an engine answered with 401 or 403: it does not accept the gateway.", "upstream")
        self.mismatches = counter("gateway_model_mismatch", "Answers that named another model than the declared one.", "upstream", "model")
        self.affinity = counter("gateway_affinity", "Calls that several upstreams could serve, by whether they went where their run was last.", "result")
        self.cancellations = counter("gateway_cancellations", "Calls that were left before their end, by what the engine said later.", "upstream", "result")
        self.captured = counter("gateway_captured_bodies", "Bodies that a policy wants kept, by what became of them.", "result")
        self.utility_calls = counter("gateway_utility_calls", "Requests that do no model work, by API.", "api")

    def _of_refusals(self) -> None:
        counter = self._counter
        self.refusals = counter("gateway_refusals", "Calls that were not admitted, by code.", "code")
        self.limit_refusals = counter("gateway_limit_refusals", "Final refusals, by the limit that stood in the way.", "limit")
        self.warnings = counter("gateway_warnings", "Limits of runs of which little was left, by limit.", "limit")
        self.unauthorized = counter("gateway_unauthorized", "Requests without a known key.")
        self.undeclared = counter("gateway_undeclared", "Requests for a method and path that is not declared.")

    def _of_levels(self) -> None:
        level = self._level
        self.build = self._add(Info("gateway_build", "The version that runs.", {"version": __version__}))
        self.ready = level("gateway_ready", "1 where a call could be admitted now, as /readyz says.")
        self.in_flight = level("gateway_in_flight_calls", "Calls from admission to settlement.")
        self.in_flight.read = lambda: [((), self.in_flight_now)]
        self.waiting = level("gateway_waiting_calls", "Calls in the waiting place, by what they wait for.", "reason")
        self.waiting_longest = level("gateway_waiting_longest_seconds", "How long the call that waits longest has waited.")
        self.queue_limit = level("gateway_queue_limit", "How many calls may wait.")
        self.slots_busy = level("gateway_slots_busy", "Slots taken.", "upstream")
        self.slots_idle = level("gateway_slots_idle", "Slots free.", "upstream")
        self.upstream_up = level("gateway_upstream_up", "1 where calls may be sent.", "upstream")
        self.upstream_standing = level("gateway_upstream_standing", "1 for how an upstream stands: whether it gets calls, or why not.", "upstream", "standing")
        self.wrong_health_path = level("gateway_upstream_wrong_health_path", "1 where the health path is not one of the engine's.", "upstream")
        self.upstream_state = level("gateway_upstream_state", "1 for the state that the health probe found.", "upstream", "state")

    def _of_the_ledger(self) -> None:
        level = self._level
        self.commit = self._add(Histogram("gateway_ledger_commit_seconds", "One durable commit of the ledger.", bounds=FINE_SECONDS))
        self.committed = self._counter("gateway_ledger_commands", "Commands in those commits.")
        self.commit_failures = self._counter("gateway_ledger_commit_failures", "Commits that failed.")
        self.writable = level("gateway_ledger_writable", "1 where the ledger takes entries, 0 where calls are refused for it.")
        self.clock_certain = level("gateway_ledger_clock_certain", "1 where the ledger's clock is beyond doubt.")
        self.backlog = level("gateway_ledger_backlog_commands", "Commands that are not durable yet.")
        self.lag = level("gateway_ledger_lag_seconds", "How long the commit under way has taken.")
        self.ledger_bytes = level("gateway_ledger_bytes", "Size of the ledger's files.")
        self.ledger_free = level("gateway_ledger_free_bytes", "Room on the ledger's disk.")
        self.ledger_min_free = level("gateway_ledger_min_free_bytes", "Below so much room nothing is admitted.")

    def _of_campaigns(self) -> None:
        level, limit = self._level, ("campaign", "limit", "lane", "quantity", "window")
        self.campaigns = level("gateway_campaigns", "Campaigns that are open or halted.", "state")
        self.runs = level("gateway_runs", "Open runs of a campaign.", "campaign")
        self.budget_ceiling = level("gateway_budget_ceiling", "The ceiling of a campaign's or of the gateway's limit.", *limit)
        self.budget_settled = level("gateway_budget_settled", "What is charged to it.", *limit)
        self.budget_reserved = level("gateway_budget_reserved", "What is held on it for calls under way.", *limit)
        self.budget_left = level("gateway_budget_left", "What is left of it: ceiling less settled less reserved, never below 0.", *limit)
        self.findings = level("gateway_reconciliation_rows", "Rows of a campaign's last reconciliation on record, by class.", "campaign", "class")
        self.unexplained = level("gateway_reconciliation_unexplained", "Rows in it that nothing explains.", "campaign")


class CallSums:
    """What calls of one operation, model and upstream add to, found with one look-up."""

    __slots__ = ("_duration", "_values", "charged_input", "charged_output", "first_token", "input_tokens", "output_tokens", "per_token", "waited")

    def __init__(self, metrics: Metrics, values: tuple[str, ...]) -> None:
        model = values[GEN_AI.index("gen_ai_request_model")]
        self.input_tokens = metrics.token_usage.labels(*values, "input")
        self.output_tokens = metrics.token_usage.labels(*values, "output")
        self.first_token = metrics.first_token.labels(*values)
        self.per_token = metrics.per_token.labels(*values)
        self.waited = metrics.waited.labels(model)
        self.charged_input, self.charged_output = metrics.charged.labels(model, "input"), metrics.charged.labels(model, "output")
        self._duration, self._values = metrics.duration, values

    def duration(self, error: str) -> Spread:
        """`error`: empty where there was none."""
        return self._duration.labels(*self._values, error)
