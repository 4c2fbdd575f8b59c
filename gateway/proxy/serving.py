"""The upstreams that can serve a call, and what the call must know of them before it is known which of them will.

Rule: what is decided before that holds for each of them: the smallest context, the largest bound, a count that is exact only where each of theirs is.
"""

from __future__ import annotations

from gateway.dialects.barred import key_of, mend
from gateway.dialects.dialect import BodyError, CallRequest, ForwardFacts
from gateway.policy.declaration import ModelPolicy, Policy
from gateway.proxy.salt import cache_salt
from gateway.runs.keys import Identity
from gateway.services import Services
from gateway.tokenizers.several import SeveralCounters
from gateway.tokenizers.tokenizer import Counter
from gateway.upstream.forward import Upstream

UNREPORTED = "unreported_answers"
"""Among what a policy may allow."""
Serving = tuple[Upstream, ...]


def serving(services: Services, policy: Policy, lane: str, asked: CallRequest, dialect: str) -> Serving:
    """In the order of gateway.toml. Raises BodyError for a model that this lane may not use, or not in this format, or not in one piece."""
    names = services.settings.serving(asked.model) if asked.model in policy.models_of(lane) else ()
    if not names:
        raise BodyError("model_not_found", "There is no such model here.", "model")
    speaking = [upstream for name in names if dialect in (upstream := services.engines.upstreams[name]).engine.paths]
    if not speaking:
        raise BodyError("model_not_found", "This model is not served by this API.", "model")
    whole = speaking
    if not asked.stream and asked.choices * asked.prompts > 1 and UNREPORTED not in policy.guard.allowed:
        whole = [upstream for upstream in speaking if dialect not in upstream.engine.reports_first]
    if not whole:
        field = "n" if asked.choices > 1 else "prompt"
        why = f"The field {field} asks for several answers in one piece, of which this engine reports the first alone: ask for a stream"
        raise BodyError("not_allowed", f"{why}; {mend(UNREPORTED)}.", field, key_of(UNREPORTED))
    return tuple(whole)


def may_serve(services: Services, policy: Policy, upstream: str, model: str) -> bool:
    """It takes calls at this moment, and the policy takes it."""
    return services.engines.usable(upstream) and (policy.identity.mismatch == "mark" or not services.engines.mismatch(upstream, model))


def counter_at(services: Services, upstream: str, name: str, model: ModelPolicy) -> Counter:
    return services.engines.counter(upstream, name, model.counter, model.image_tokens_max, model.overhead_tokens)


def counter_of(services: Services, upstreams: Serving, name: str, model: ModelPolicy) -> Counter:
    if len(upstreams) == 1:
        return counter_at(services, upstreams[0].name, name, model)
    return SeveralCounters({each.name: counter_at(services, each.name, name, model) for each in upstreams}, services.engines.usable)


def context_of(services: Services, upstreams: Serving, model: ModelPolicy) -> int | None:
    smallest = model.context_tokens
    for each in upstreams:
        size = services.engines.context(each.name)
        if size is not None and (smallest is None or size < smallest):
            smallest = size
    return smallest


def facts_of(services: Services, identity: Identity, upstream: Upstream, dialect: str, model: str) -> ForwardFacts:
    engine, policy = upstream.engine, identity.campaign.policy
    allowed = policy.guard.allowed_fields
    pinned = engine.pin_fields
    if engine.salts(dialect) and (salt := cache_salt(services.cache_secret, policy.cache_sharing, identity.campaign.campaign, identity.run.run)):
        pinned = {**pinned, engine.salt_field: f'"{salt}"'}
    return ForwardFacts(
        model=services.settings.upstreams[upstream.name].models[model],
        cap_name=engine.cap_names.get(dialect, ""),
        strip_fields=engine.strip_fields - allowed if allowed else engine.strip_fields,
        pin_fields=pinned,
        asks_usage=engine.asks_usage,
        request_id_field=engine.request_id_field,
    )
