"""What each key can't say alone: names that must be declared, caps that could never bind, limits that a call could not be held to.

The rule: a policy that passes can be kept by the gateway exactly as it reads.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.accounting.limit import SCOPE_ORDER, Scope
from gateway.accounting.quantity import CLAMPABLE, Quantity
from gateway.policy.body_checks import check_body
from gateway.policy.days import zone_names
from gateway.policy.declaration import APIS, GatewayLimits, Policy
from gateway.policy.declared import ATTEMPTS, CONTEXT_TOKENS, PROMPT_TOKENS, WALL_SECONDS, Declared
from gateway.policy.diagnose import Report
from gateway.policy.guard_rules import check_guard
from gateway.policy.nearest import close
from gateway.policy.resolve import call_caps
from gateway.policy.values import unknown_word


def check_policy(policy: Policy, report: Report) -> None:
    _check_names(policy, report)
    _check_lane_models(policy, report)
    check_days(policy.declared, policy.timezone, ("timezone",), report)
    check_never_binding(policy.declared, policy.declared, report)
    _check_contexts(policy, report)
    check_output_capped(policy, policy.declared, report)
    check_body(policy.body, policy.guard.allowed, report)
    check_guard(policy.guard, policy.body, policy.cache_sharing, report)


def check_gateway_limits(limits: GatewayLimits, report: Report) -> None:
    """Their names begin with `gateway`; in the file they stand under `limits`."""
    check_days(limits.declared, limits.timezone, ("limits", "timezone"), report)
    check_never_binding(limits.declared, limits.declared, report)


def _check_names(policy: Policy, report: Report) -> None:
    for api in policy.apis:
        if api not in APIS:
            report.add(("apis",), unknown_word(api, list(APIS)))
    for lane, declared in policy.lanes.items():
        for model in declared.models:
            if model not in policy.models:
                likely = close(model, policy.models)
                report.add(("lanes", lane, "models"), f"model {model} is not declared under [models.NAME]" + (f"; did you mean {likely}?" if likely else ""))


def _check_lane_models(policy: Policy, report: Report) -> None:
    """A limit of a model on a lane that may not use it."""
    for item in policy.declared:
        if item.lane and item.model and item.model not in policy.models_of(item.lane):
            report.add(item.path, f"can never bind: lane {item.lane} may not use model {item.model} (lanes.{item.lane}.models)")


def _check_contexts(policy: Policy, report: Report) -> None:
    """A context of one call above the one that every model it concerns was given."""
    for item in policy.declared:
        if item.quantity != CONTEXT_TOKENS:
            continue
        models = [item.model] if item.model else policy.models_of(item.lane)
        given = {name: size for name in models if name in policy.models and (size := policy.models[name].context_tokens) is not None}
        if given and len(given) == len(models) and item.ceiling > max(given.values()):
            name = max(given, key=lambda model: given[model])
            report.add(
                item.path,
                f'{item.ceiling} can never bind: models."{name}".context_tokens = {given[name]} stops all of it first; lower this one or raise that one',
            )


def check_days(declared: Iterable[Declared], timezone: str | None, key: tuple[str, ...], report: Report) -> None:
    if timezone is not None and timezone not in zone_names():
        report.add(key, _unknown_zone(timezone))
    for item in declared:
        if item.window and not item.timezone:
            where = "at the top of the file" if len(key) == 1 else "in [limits]"
            report.add(place(item), f'a day needs a time zone: write timezone = "Europe/Berlin" (or yours) {where}')
        elif item.window and item.timezone != timezone and item.timezone not in zone_names():
            report.add((*place(item)[:-1], "timezone"), _unknown_zone(item.timezone))


def _unknown_zone(name: str) -> str:
    likely = close(name, zone_names()) or close(name.title(), zone_names())
    return f"time zone {name} is unknown" + (f"; did you mean {likely}?" if likely else "; write an IANA name such as Europe/Berlin")


def check_never_binding(declared: Iterable[Declared], broader: Iterable[Declared], report: Report) -> None:
    """A ceiling above one that all its traffic is also held to says something that never happens."""
    covers = list(broader)
    for item in declared:
        above = [cover for cover in covers if cover is not item and _covers(cover, item) and item.ceiling > cover.ceiling]
        if above:
            cover = min(above, key=lambda found: (found.ceiling, found.rank))
            report.add(place(item), f"{item.ceiling} can never bind: {cover.name} = {cover.ceiling} stops all of it first; lower this one or raise that one")


def _covers(cover: Declared, item: Declared) -> bool:
    """Everything that counts against `item` counts against `cover` too, by the end of its window at the latest."""
    same_window = not cover.window or (cover.window, cover.timezone) == (item.window, item.timezone)
    broader = SCOPE_ORDER[cover.scope] >= SCOPE_ORDER[item.scope]
    return broader and same_window and cover.concerns(item.lane, item.model) and cover.quantity in _counted_in(item)


def _counted_in(item: Declared) -> tuple[str, ...]:
    match item.quantity:
        case Quantity.INPUT_TOKENS | Quantity.OUTPUT_TOKENS:
            return item.quantity, Quantity.TOTAL_TOKENS
        case "prompt_tokens":
            return PROMPT_TOKENS, CONTEXT_TOKENS, Quantity.INPUT_TOKENS, Quantity.TOTAL_TOKENS
        case "context_tokens":
            return CONTEXT_TOKENS, Quantity.TOTAL_TOKENS
        case "wall_seconds":  # a span does not cover it: what runs at the span's end goes on to its wall
            return (WALL_SECONDS,)
        case "attempts_per_task":
            return ATTEMPTS, Quantity.RUNS
        case _:
            return (item.quantity,)


def check_output_capped(policy: Policy, declared: Iterable[Declared], report: Report) -> None:
    """A limit on output needs to know how much a call wants that does not say so itself."""
    open_ended = [(lane, model) for lane in policy.lane_names for model in policy.models_of(lane) if _open_ended(policy, lane, model)]
    for item in declared:
        if item.quantity not in CLAMPABLE:
            continue
        models = sorted({model for lane, model in open_ended if item.concerns(lane, model)})
        if models:
            report.add(
                place(item),
                f"a call of {', '.join(models)} that names no output ceiling has none: set output_tokens in [call], or default_output_tokens in "
                + " and ".join(f'[models."{model}"]' for model in models),
            )


def _open_ended(policy: Policy, lane: str, model: str) -> bool:
    declared = policy.models.get(model)
    return declared is not None and declared.default_output_tokens is None and call_caps(policy, lane, model).output_tokens is None


def place(item: Declared) -> tuple[str, ...]:
    """Where it stands in its file: limits of the gateway scope stand under `limits`."""
    return ("limits", *item.path[1:]) if item.scope is Scope.GATEWAY else item.path
