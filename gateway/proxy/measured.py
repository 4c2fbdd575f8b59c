"""What the metrics hear of a call when its settlement is posted: once each, whatever becomes of the writing."""

from __future__ import annotations

from typing import Final

from gateway.accounting.settling import Terms
from gateway.accounting.usage import Outcome, Reading
from gateway.metrics.metrics import CallSums, Metrics
from gateway.proxy.under_way import UnderWay

OPERATIONS: Final = {
    "openai.chat": "chat",
    "openai.responses": "chat",
    "anthropic.messages": "chat",
    "ollama.chat": "chat",
    "lmstudio.chat": "chat",
    "openai.completions": "text_completion",
    "ollama.generate": "text_completion",
    "llamacpp.completion": "text_completion",
    "sglang.generate": "text_completion",
    "tgi.generate": "text_completion",
    "tgi.generate_stream": "text_completion",
    "openai.embeddings": "embeddings",
    "ollama.embed": "embeddings",
    "llamacpp.embedding": "embeddings",
    "rerank": "rerank",
}
"""Formats, as the conventions name what they do; they have no word for rerank."""
ANOTHER: Final = "_OTHER"
"""In place of a model's name that an engine made up: labels come from configuration."""
_WHOLE: Final = (Outcome.COMPLETED, Outcome.LENGTH)


def measured(reservation: UnderWay, terms: Terms, reading: Reading) -> None:
    call, metrics = reservation.call, reservation.services.metrics
    model, upstream = call.request.model, call.upstream.name
    metrics.calls.labels(upstream, model, terms.outcome, terms.source).inc()
    sums = metrics.of_call(OPERATIONS[call.dialect.name], call.engine.kind, model, _answered(reservation, reading), upstream)
    sums.duration("" if terms.outcome in _WHOLE else terms.outcome).observe(reservation.engine_done_at - reservation.sent_at)
    _tokens(metrics, sums, model, terms)
    _pace(reservation, sums, terms)
    sums.waited.observe(reservation.admission.waited_ms / 1000)
    if reading.anomalies and any(anomaly.startswith("reader_choked") for anomaly in reading.anomalies):
        metrics.faults.labels(model).inc()
    if terms.flags:
        _flags(reservation, metrics, terms)
    if terms.outcome is Outcome.CAP_CUT or "cap_ignored" in terms.flags:
        metrics.cap_ignored.labels(upstream).inc()
    if reservation.status in (401, 403):
        metrics.upstream_auth.labels(upstream).inc()
    if reservation.admission.clamped_by is not None:
        metrics.clamps.labels(reservation.admission.clamped_by).inc()


def _answered(reservation: UnderWay, reading: Reading) -> str:
    """The model that the answer names; one that is not the declared one by no name of its own."""
    if not reading.model:
        return ""
    call = reservation.call
    own = reservation.services.settings.upstreams[call.upstream.name].models.get(call.request.model)
    return own if reading.model == own else ANOTHER


def _tokens(metrics: Metrics, sums: CallSums, model: str, terms: Terms) -> None:
    usage, source = terms.usage, terms.source
    if usage.input_tokens is None:
        metrics.unknown.labels(model, "input").inc()
    else:
        sums.input_tokens.observe(usage.input_tokens)
        metrics.tokens.labels(model, "input", source).inc(usage.input_tokens)
    if usage.output_tokens is None:
        metrics.unknown.labels(model, "output").inc()
    else:
        sums.output_tokens.observe(usage.output_tokens)
        metrics.tokens.labels(model, "output", source).inc(usage.output_tokens)
    if usage.cached_tokens:
        metrics.tokens.labels(model, "cached", source).inc(usage.cached_tokens)
    if usage.reasoning_tokens:
        metrics.tokens.labels(model, "reasoning", source).inc(usage.reasoning_tokens)
    sums.charged_input.inc(terms.charge.input_tokens)
    sums.charged_output.inc(terms.charge.output_tokens)


def _pace(reservation: UnderWay, sums: CallSums, terms: Terms) -> None:
    """Of streams alone: when an answer in one piece had its first token, nobody saw. Comments are no content."""
    relay = reservation.relay
    if reservation.meter is None or not reservation.meter.streams or relay is None or (first_at := relay.first_content_at) is None:
        return
    sums.first_token.observe(first_at - reservation.sent_at)
    made = terms.usage.output_tokens
    if terms.outcome in _WHOLE and made is not None and made > 1:
        sums.per_token.observe(max(0.0, reservation.engine_done_at - first_at) / (made - 1))


def _flags(reservation: UnderWay, metrics: Metrics, terms: Terms) -> None:
    model = reservation.call.request.model
    if "count_drift" in terms.flags:
        metrics.drifts.labels(model).inc()
    if "overshoot" in terms.flags:
        metrics.overshoots.labels(model).inc()
        admission, charge = reservation.admission, terms.charge
        for kind, charged, held in (("input", charge.input_tokens, admission.prompt_tokens), ("output", charge.output_tokens, admission.output)):
            metrics.overshot_tokens.labels(model, kind).inc(max(0, charged - held))
