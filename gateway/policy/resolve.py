"""The limits over one call or one opening, at one moment.

The rule: narrow to broad, each on an account whose name holds its window; the time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from gateway.accounting.limit import Account, CallCaps, Limit, Scope
from gateway.accounting.quantity import Quantity
from gateway.policy.canonical import canonical_json, sha256_hex
from gateway.policy.days import day_of
from gateway.policy.declaration import SCHEMA, GatewayLimits, Policy
from gateway.policy.declared import ATTEMPTS, CONTEXT_TOKENS, PROMPT_TOKENS, SPAN_SECONDS, WALL_SECONDS, Declared

Origins = Mapping[str, str]
"""A limit's name -> `file:line`."""
NO_ORIGINS: Origins = MappingProxyType({})


def resolve_limits(
    policy: Policy, gateway_limits: GatewayLimits, *, campaign: str, run: str, lane: str, model: str, now_ms: int, origins: Origins = NO_ORIGINS
) -> tuple[Limit, ...]:
    """Every limit that a call of this lane and model takes part in, narrow to broad."""
    return tuple(
        _limit(item, campaign, run, now_ms, origins)
        for item in (*policy.declared, *gateway_limits.declared)
        if item.kept and item.quantity != Quantity.RUNS and item.concerns(lane, model)
    )


def run_limits(policy: Policy, gateway_limits: GatewayLimits, campaign: str, now_ms: int, origins: Origins = NO_ORIGINS) -> tuple[Limit, ...]:
    """Every limit on how many runs may be opened, narrow to broad."""
    return tuple(_limit(item, campaign, "", now_ms, origins) for item in (*policy.declared, *gateway_limits.declared) if item.quantity == Quantity.RUNS)


def broad_limits(declared: Iterable[Declared], campaign: str, now_ms: int) -> tuple[Limit, ...]:
    """The limits that outlive a run, as accounts keep them."""
    return tuple(_limit(item, campaign, "", now_ms, NO_ORIGINS) for item in declared if item.kept and item.scope is not Scope.RUN)


def wall_limits(policy: Policy, lane: str) -> tuple[Declared, ...]:
    """The seconds of a run, and of a lane of it, narrow to broad."""
    return tuple(item for item in policy.declared if item.quantity == WALL_SECONDS and item.lane in ("", lane))


def span_limit(policy: Policy) -> Declared | None:
    """The seconds of a campaign from its opening."""
    return next((item for item in policy.declared if item.quantity == SPAN_SECONDS), None)


def attempts_limit(policy: Policy) -> Declared | None:
    """How many runs of a campaign may name the same task."""
    return next((item for item in policy.declared if item.quantity == ATTEMPTS), None)


def call_caps(policy: Policy, lane: str, model: str) -> CallCaps:
    """The smallest of each cap of one call; of equal ones the narrowest gives its name."""
    prompt = _smallest(policy, lane, model, PROMPT_TOKENS)
    output = _smallest(policy, lane, model, Quantity.OUTPUT_TOKENS)
    context = _smallest(policy, lane, model, CONTEXT_TOKENS)
    return CallCaps(
        prompt_tokens=prompt.ceiling if prompt else None,
        output_tokens=output.ceiling if output else None,
        context_tokens=context.ceiling if context else None,
        prompt_limit=prompt.name if prompt else "",
        output_limit=output.name if output else "",
        context_limit=context.name if context else "",
    )


def effective(policy: Policy, gateway_limits: GatewayLimits) -> dict[str, object]:
    """All limits of both files by name, canonical. Its SHA-256 is what a run's opening holds."""
    every = (*policy.declared, *gateway_limits.declared)
    return {
        "schema": SCHEMA,
        "limits": {item.name: item.ceiling for item in every},
        "timezones": {item.name: item.timezone for item in every if item.window},
        "wall_from": policy.run.wall_from,
    }


def limits_hash(policy: Policy, gateway_limits: GatewayLimits) -> str:
    return sha256_hex(canonical_json(effective(policy, gateway_limits)))


def _smallest(policy: Policy, lane: str, model: str, quantity: str) -> Declared | None:
    caps = (item for item in policy.declared if item.scope is Scope.CALL and item.quantity == quantity and item.concerns(lane, model))
    return min(caps, key=lambda item: (item.ceiling, item.rank), default=None)


def _limit(item: Declared, campaign: str, run: str, now_ms: int, origins: Origins) -> Limit:
    day = day_of(item.timezone, now_ms) if item.window else None
    account = Account(
        scope=item.scope,
        subject=_subject(item.scope, campaign, run),
        quantity=Quantity(item.quantity),
        lane=item.lane,
        model=item.model,
        window=day.name if day else "",
    )
    end_ms = day.end_ms if day else None
    return Limit(name=item.name, account=account, ceiling=item.ceiling, window_end_ms=end_ms, origin=origins.get(item.name, ""))


def _subject(scope: Scope, campaign: str, run: str) -> str:
    match scope:
        case Scope.RUN:
            return f"{campaign}/{run}"
        case Scope.CAMPAIGN:
            return campaign
        case _:
            return ""
