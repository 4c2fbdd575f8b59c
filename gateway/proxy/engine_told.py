"""What the end of a call says of its engine: whether it works, and whether it is the model that it should be."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gateway.accounting.settling import Terms
from gateway.accounting.usage import Outcome, Reading
from gateway.proxy.under_way import UnderWay

MODEL_MISMATCH: Final = "model_mismatch"
_FAILED: Final = frozenset({Outcome.ENGINE_ERROR, Outcome.ENGINE_DIED, Outcome.ENGINE_TIMEOUT})
_OVERLOADED: Final = frozenset({503, 529})


def tell_engines(reservation: UnderWay) -> None:
    """Once, when the call is over: before its slot is given to the next. A call that was not sent says nothing here."""
    terms, call, engines = reservation.terms, reservation.call, reservation.services.engines
    name, failure = reservation.admission.upstream, reservation.failure
    if terms is None:
        return
    if terms.outcome in _FAILED or reservation.status in _OVERLOADED:
        what = str(failure) if failure is not None else f"status {reservation.status}"
        connected = failure is None or failure.phase != "connect"
        engines.failed(name, call.run_key, what, connected=connected)
        identity = call.identity
        reservation.services.gate.left_home(identity.campaign.campaign, identity.run.run, identity.lane, tuple(each.name for each in call.upstreams))
    elif 200 <= reservation.status < 500:
        engines.went_well(name)


def marked(reservation: UnderWay, terms: Terms, reading: Reading) -> Terms:
    """With a flag where the answer names another model than was declared; only of engines that name what they have, and not what was asked for."""
    call = reservation.call
    if not reading.model or call.dialect.name not in call.engine.names_model:
        return terms
    if not reservation.services.engines.answers_as(call.upstream.name, call.request.model, reading.model):
        return terms
    reservation.services.metrics.mismatches.labels(call.upstream.name, call.request.model).inc()
    return replace(terms, flags=(*terms.flags, MODEL_MISMATCH))
