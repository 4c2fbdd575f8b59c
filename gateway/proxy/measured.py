"""What the metrics hear of a call when its settlement is posted: once each, whatever becomes of the writing."""

from __future__ import annotations

from gateway.accounting.settling import Terms
from gateway.accounting.usage import Reading
from gateway.proxy.under_way import UnderWay


def measured(reservation: UnderWay, terms: Terms, reading: Reading) -> None:
    metrics, model = reservation.services.metrics, reservation.call.request.model
    metrics.calls.labels(model, terms.outcome).inc()
    kinds = {
        "input": terms.usage.input_tokens,
        "output": terms.usage.output_tokens,
        "cached": terms.usage.cached_tokens,
        "reasoning": terms.usage.reasoning_tokens,
    }
    for kind, tokens in kinds.items():
        if tokens is not None:
            metrics.tokens.labels(model, kind, terms.source).inc(tokens)
        elif kind in ("input", "output"):
            metrics.unknown.labels(model, kind).inc()
    metrics.charged.labels(model, "input").inc(terms.charge.input_tokens)
    metrics.charged.labels(model, "output").inc(terms.charge.output_tokens)
    metrics.waited.labels(model).observe(reservation.admission.waited_ms / 1000)
    if (first_s := _first_content_s(reservation)) is not None:
        metrics.first_token.labels(model).observe(first_s)
    if any(anomaly.startswith("reader_choked") for anomaly in reading.anomalies):
        metrics.faults.labels(model).inc()
    if "count_drift" in terms.flags:
        metrics.drifts.labels(model).inc()
    if "overshoot" in terms.flags:
        metrics.overshoots.labels(model).inc()
        held = {"input": reservation.admission.prompt_tokens, "output": reservation.admission.output}
        for kind, tokens in (("input", terms.charge.input_tokens), ("output", terms.charge.output_tokens)):
            metrics.overshot_tokens.labels(model, kind).inc(max(0, tokens - held[kind]))
    if reservation.admission.clamped_by is not None:
        metrics.clamps.labels(reservation.admission.clamped_by).inc()


def _first_content_s(reservation: UnderWay) -> float | None:
    """From sending a call to the first content of its stream (comments are none), or to the first byte of an answer in one piece."""
    if reservation.meter is None or reservation.relay is None or reservation.answer is None:
        return None
    if reservation.meter.streams:
        at = reservation.relay.first_content_at
        return None if at is None else at - reservation.sent_at
    first_ms = reservation.answer.first_byte_ms
    return None if first_ms is None else first_ms / 1000
