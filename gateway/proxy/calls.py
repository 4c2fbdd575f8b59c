"""From a request to a call: identify, route, guard. Nothing is written and nothing is sent here."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from aiohttp import web

from gateway.accounting.limit import CallCaps
from gateway.accounting.quantity import Quantity
from gateway.dialects import ALSO, DIALECTS, FAMILIES
from gateway.dialects.barred import Allowed
from gateway.dialects.dialect import BodyError, CallRequest, Dialect, ForwardFacts, Rendering
from gateway.dialects.received import Received
from gateway.dialects.stripping import strip
from gateway.engines.engine import Engine
from gateway.logs import log
from gateway.policy.body_rules import apply
from gateway.policy.declaration import ModelPolicy, Policy
from gateway.policy.declared import PROMPT_TOKENS
from gateway.proxy.agent_headers import check_headers
from gateway.proxy.body import BodyBounds, read_body, receive
from gateway.proxy.identify import presented_key, session_headers
from gateway.proxy.may_call import check_in_time, check_left, check_open
from gateway.proxy.routing import plain_path
from gateway.proxy.serving import context_of, counter_at, counter_of, facts_of, serving
from gateway.runs.keys import Identity
from gateway.services import Services
from gateway.tokenizers.tokenizer import CannotCount, Counter
from gateway.upstream.call import Refusal, Refused
from gateway.upstream.forward import Upstream

MODELS = frozenset({"openai.models", "ollama.tags"})
"""Lists of what is declared: no calls."""
BUDGET = "gateway.budget"
PREFLIGHT = "gateway.preflight"
TOLD = {("GET", "/gateway/v1/budget"): BUDGET, ("POST", "/gateway/v1/preflight"): PREFLIGHT}
"""What every policy that tells its agents has, beside its APIs."""
_WANTS_JSON, _WANTS_LINES, _WANTS_EVENTS = {"Accept": "application/json"}, {"Accept": "application/x-ndjson"}, {"Accept": "text/event-stream"}
NEEDS_PROMPT = frozenset({Quantity.INPUT_TOKENS, Quantity.TOTAL_TOKENS, PROMPT_TOKENS, "context_tokens"})


class Unauthorized(Exception):
    """No key, an unknown one, or two that differ."""


class Undeclared(Exception):
    """Not a declared API of this policy."""


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """One model request, checked, before it waits."""

    call_id: str
    identity: Identity
    policy: Policy
    model: ModelPolicy
    dialect: Dialect
    request: CallRequest
    received: Received = field(repr=False)
    """As the agent sent it; `request.body` is what the policy's rules made of it."""
    stripped: tuple[str, ...] = ()
    """What the policy took out of it: names of fields, `tools.` and the kind of a tool."""
    upstream: Upstream
    """The one that it goes to; while it waits, the first of those that can serve it."""
    upstreams: tuple[Upstream, ...]
    """Those that can serve it."""
    facts: ForwardFacts
    counter: Counter
    caps: CallCaps
    context_tokens: int | None
    bound_tokens: int
    bound_exact: bool
    arrived_at: float
    """Monotonic seconds."""
    session: Mapping[str, str] = field(default_factory=dict)
    counted: int | None = None
    """The exact prompt, once it was counted."""
    may_count: bool = True
    """Its request is still whole."""

    def let_go(self, prompt_exact: bool) -> None:
        """It was sent: its body is read by nobody any more, and its answer may take an hour. What is read all the same shows itself as a fault.

        Kept where its prompt may have to be counted when the answer has ended (counted_late.py).
        """
        del self.received
        asked, counter = self.request, self.counter
        self.may_count = not prompt_exact and ((counter.exact and not asked.pictures) if asked.generates else counter.can_count)
        if not self.may_count:
            asked.let_go()

    def goes_to(self, name: str, services: Services) -> None:
        """The waiting place has decided."""
        if len(self.upstreams) > 1:
            self.upstream = next(upstream for upstream in self.upstreams if upstream.name == name)
            self.facts = facts_of(services, self.identity, self.upstream, self.dialect.name, self.request.model)
            self.counter = counter_at(services, name, self.request.model, self.model)

    @property
    def minimum_output(self) -> int:
        if len(self.upstreams) == 1:
            return self.upstream.engine.minimum_output
        return max(upstream.engine.minimum_output for upstream in self.upstreams)

    @property
    def engine(self) -> Engine:
        return self.upstream.engine

    @property
    def path(self) -> str:
        return self.upstream.engine.paths[self.dialect.name]

    @property
    def forwarded_headers(self) -> Mapping[str, str]:
        """All that an engine learns of the agent's headers; the rest is ours."""
        if not self.request.stream:
            return _WANTS_JSON
        return _WANTS_LINES if self.request.json_lines else _WANTS_EVENTS

    @property
    def run_key(self) -> str:
        return _run_key(self.identity)


def _run_key(identity: Identity) -> str:
    return f"{identity.campaign.campaign}/{identity.run.run}"


@dataclass(slots=True, kw_only=True)
class Route:
    """Who asks for what; the dialect is known even where the answer will be no."""

    identity: Identity
    api: str
    model: str = ""
    """Once the body has named one that this lane may use."""


def find_route(request: web.BaseRequest, services: Services) -> Route:
    """Raises Unauthorized, Undeclared."""
    secret = presented_key(request.headers)
    identity = services.runs.identify(secret) if secret is not None else None
    if identity is None:
        raise Unauthorized
    asked = (request.method, request.raw_path)
    if asked not in FAMILIES:  # whose paths are plain
        asked = (request.method, plain_path(request.raw_path) or "")
    if asked in TOLD and identity.campaign.policy.agent.tell_agent:
        return Route(identity=identity, api=TOLD[asked])
    declared = identity.campaign.policy.apis
    for api in (FAMILIES.get(asked), ALSO.get(asked)):
        if api is not None and api in declared:
            return Route(identity=identity, api=api)
    raise Undeclared


async def read_call(request: web.BaseRequest, services: Services, route: Route, call_id: str) -> Call:
    """Raises BodyRefused, BodyError, Refused."""
    arrived_at = time.monotonic()
    identity = route.identity
    check_open(services, identity)
    check_in_time(services, identity)
    check_left(services, identity)
    policy = identity.campaign.policy
    check_headers(request.headers, policy.guard.stripped)
    bounds = services.settings.bounds
    limits = BodyBounds(max_bytes=bounds.max_body_bytes, max_depth=bounds.max_depth, max_keys=bounds.max_keys, read_seconds=bounds.body_seconds)
    raw = await read_body(request, limits)
    check_open(services, identity)  # reading took its time
    dialect = DIALECTS[route.api]
    received = receive(raw, limits, services.growth.known(_run_key(identity), identity.lane, dialect.name))
    kept, stripped = strip(received.value, dialect.name, policy.guard.stripped, policy.guard.allowed)
    ruled = apply(kept, policy.body)
    allowed = Allowed(policy.guard.allowed, bounds.max_inline_bytes)
    asked = dialect.read_request(ruled, allowed, received.known_of(ruled))
    if not asked.model:
        asked = _named(asked, services, identity)
    upstreams = serving(services, policy, identity.lane, asked, dialect.name)
    model = policy.models[asked.model]
    route.model = asked.model
    counter = counter_of(services, upstreams, asked.model, model)
    if (asked.pictures or not _has_measure(counter, asked)) and _input_is_capped(services, identity, model, asked.model):
        _check_countable(counter, model, asked)
    bound, exact = await _bound(counter, asked)
    return Call(
        call_id=call_id,
        identity=identity,
        policy=policy,
        model=model,
        dialect=dialect,
        request=asked,
        received=received,
        upstream=upstreams[0],
        upstreams=upstreams,
        stripped=stripped,
        facts=facts_of(services, identity, upstreams[0], dialect.name, asked.model),
        counter=counter,
        caps=services.remembered.caps(policy, identity.lane, asked.model),
        context_tokens=context_of(services, upstreams, model),
        bound_tokens=bound,
        bound_exact=exact,
        arrived_at=arrived_at,
        session=session_headers(request.headers),
    )


def _named(request: CallRequest, services: Services, identity: Identity) -> CallRequest:
    """Formats of servers with one model may leave its name out: then it is the only one."""
    models = declared_models(services, identity)
    return replace(request, model=models[0]) if len(models) == 1 else request


def _has_measure(counter: Counter, request: CallRequest) -> bool:
    """A prompt that no template renders is bounded by its bytes alone."""
    return counter.can_count or counter.knows_overhead or (request.rendering is Rendering.PLAIN and request.sizes is None)


def _input_is_capped(services: Services, identity: Identity, model: ModelPolicy, name: str) -> bool:
    """Something that the operator declared rests on how long this prompt is."""
    every = (*identity.campaign.policy.declared, *services.settings.limits.declared)
    return model.context_tokens is not None or any(item.quantity in NEEDS_PROMPT and item.concerns(identity.lane, name) for item in every)


def _check_countable(counter: Counter, model: ModelPolicy, request: CallRequest) -> None:
    """Under a cap on input. Raises BodyError for pictures of which nobody said how long they are, Refused where nothing can say how long the prompt is."""
    if request.pictures and model.image_tokens_max is None:
        key = f'models."{request.model}".image_tokens_max'
        raise BodyError("not_allowed", f"Pictures are not allowed here: `{key}` of the policy would allow them.", "messages", key)
    if not _has_measure(counter, request):
        raise Refused(Refusal(code="engine_unavailable", final=False))


async def _bound(counter: Counter, request: CallRequest) -> tuple[int, bool]:
    try:
        await counter.ready(request)
        return counter.bound(request)
    except CannotCount as error:
        raise not_countable(error) from None


def not_countable(error: Exception) -> Refused:
    """Overhead or count is not to be had: the agent learns no more than that, the operator why."""
    log.warning("a prompt could not be counted", extra={"fields": {"reason": str(error)}})
    return Refused(Refusal(code="engine_unavailable", final=False))


def declared_models(services: Services, identity: Identity) -> list[str]:
    """What the key's lane may use and an upstream serves."""
    return [name for name in identity.campaign.policy.models_of(identity.lane) if services.settings.serving(name)]
