"""The ticket with which a call waits: what it wants of its limits, what it can never have, and what may end its wait."""

from __future__ import annotations

from dataclasses import replace

from gateway.accounting.decision import Demand
from gateway.accounting.limit import Limit, Shortfall
from gateway.accounting.wanting import make_demand
from gateway.dialects.dialect import BodyError
from gateway.errors import EngineFailure
from gateway.proxy.calls import Call, not_countable
from gateway.proxy.may_call import refused_now
from gateway.proxy.refusing import template_words
from gateway.services import Services
from gateway.tokenizers.tokenizer import CannotCount, PromptRejected
from gateway.upstream.call import Refusal, Ticket


def ticket_of(call: Call, services: Services) -> Ticket:
    """What the waiting place must know of this call."""
    identity, admission = call.identity, call.policy.admission
    campaign, run, lane, model = identity.campaign.campaign, identity.run.run, identity.lane, call.request.model
    times = identity.campaign.times

    def resolve(now_ms: int) -> tuple[Limit, ...]:
        return services.remembered.limits(call.policy, campaign=campaign, run=run, lane=lane, model=model, now_ms=now_ms, origins=identity.campaign.origins)

    def deadline() -> int | None:
        known = services.runs.deadline(identity)
        return None if known is None else known.at_ms

    return Ticket(
        call_id=call.call_id,
        campaign=campaign,
        run=run,
        lane=lane,
        engines=tuple([upstream.name for upstream in call.upstreams]),
        resolve=resolve,
        demand=lambda prompt, exact: _demand(call, prompt, exact),
        bound_tokens=call.bound_tokens,
        bound_exact=call.bound_exact,
        count=(lambda: _count(call)) if call.counter.can_count else None,
        check=lambda now_ms: refused_now(services, identity, now_ms),
        check_prompt=lambda prompt, _exact: _impossible(call, prompt),
        halted=lambda: identity.held,
        takes=None if call.policy.identity.mismatch == "mark" else lambda upstream: not services.engines.mismatch(upstream, model),
        deadline=deadline if times.walls or times.span is not None else None,
        clamp_after_ms=admission.clamp_after_seconds * 1000,
        queue_ms=admission.queue_seconds * 1000,
    )


def _demand(call: Call, prompt_tokens: int, exact: bool) -> Demand:
    request, admission = call.request, call.policy.admission
    asked = request.asked_output
    demand = make_demand(
        prompt_tokens=prompt_tokens,
        exact=exact,
        can_count=call.counter.can_count,
        multiple=request.choices * request.prompts,
        asked=None if asked is None else max(asked, call.minimum_output if request.generates else 0),
        default=call.model.default_output_tokens,
        caps=call.caps,
        context_tokens=_context(call),
        over=admission.over,
        min_output_tokens=admission.min_output_tokens,
        enough_output_tokens=admission.enough_output_tokens,
    )
    if not exact and call.counter.can_count and (not call.counter.trusts_bound or _impossible(call, prompt_tokens) is not None):
        # A report stood above this model's bound, or the bound alone would forbid the call: only a count can say.
        demand = replace(demand, bound_lowered_want=True)
    return demand


async def _count(call: Call) -> int:
    try:
        call.counted = await call.counter.count(call.request, call.run_key)
    except PromptRejected as error:
        raise BodyError("body_invalid", template_words(str(error)), "messages") from None
    except (CannotCount, EngineFailure) as error:
        raise not_countable(error) from None
    return call.counted


def _impossible(call: Call, prompt_tokens: int) -> Refusal | None:
    """What this one call can never have, whatever others do."""
    caps, request = call.caps, call.request
    if caps.prompt_tokens is not None and prompt_tokens > caps.prompt_tokens:
        return _above(call, caps.prompt_limit, caps.prompt_tokens, prompt_tokens)
    most, choices = caps.output_tokens, request.choices * request.prompts
    if most is not None and request.generates and most < choices * call.minimum_output:  # not one token for each choice
        shortfall = Shortfall(name=call.caps.output_limit, ceiling=most, settled=0, reserved=0, asked=choices)
        return Refusal(code="run_budget_reached", final=True, shortfall=shortfall)
    context, cap = _context(call), caps.context_tokens
    if cap is not None and prompt_tokens >= cap and (context is None or cap < context):  # the narrower of two is the one that is named
        return _above(call, caps.context_limit, cap, prompt_tokens, output=1)
    if context is not None and prompt_tokens >= context:
        shortfall = Shortfall(name="context", ceiling=context, settled=0, reserved=0, asked=prompt_tokens)
        return Refusal(code="context_overflow", final=False, shortfall=shortfall, engine=call.engine.kind)  # agents compact, and go on
    return None


def _context(call: Call) -> int | None:
    """The model's, where it bounds the whole prompt: of several prompts each has one of its own, and only the engine can say."""
    return call.context_tokens if call.request.prompts == 1 else None


def _above(call: Call, name: str, cap: int, prompt_tokens: int, *, output: int = 0) -> Refusal:
    """A cap of the policy's: it says what such a prompt is answered with. `output` is the least that must fit beside it."""
    stops = call.policy.admission.over_prompt == "stop"
    asked = prompt_tokens + output if stops else prompt_tokens  # an overflow tells the prompt, in the engine's own form
    shortfall = Shortfall(name=name, ceiling=cap, settled=0, reserved=0, asked=asked)
    return Refusal(code="prompt_above_cap" if stops else "context_overflow", final=stops, shortfall=shortfall, engine=call.engine.kind)
