"""From what a body asks for to what the call wants of its limits: the caps of one call and the model's context are folded in here, once."""

from __future__ import annotations

from typing import Final, Literal

from gateway.accounting.decision import Demand
from gateway.accounting.limit import CallCaps

NO_CEILING_TOKENS: Final = 2**31 - 1
"""An output that nothing bounds: no figure asked, no default, no cap, no context known."""


def make_demand(
    *,
    prompt_tokens: int,
    exact: bool,
    can_count: bool,
    multiple: int,
    asked: int | None,
    default: int | None,
    caps: CallCaps,
    context_tokens: int | None,
    over: Literal["clamp", "refuse"] = "clamp",
    min_output_tokens: int = 1024,
    enough_output_tokens: int = 4096,
) -> Demand:
    """`asked` (None: the body names none) and `default` are per choice; `context_tokens` is the model's.

    A prompt above its cap or the context is not refused here: it only leaves nothing to want.
    """
    each, ceiling_from = _first(asked, default)
    if caps.output_tokens is not None and caps.output_tokens // multiple < each:
        each, ceiling_from = caps.output_tokens // multiple, caps.output_limit or "call.output_tokens"
    bound_lowered_want = False
    context, context_from = _smaller_context(context_tokens, caps)
    if context is not None and context - prompt_tokens < each:
        each, ceiling_from = max(context - prompt_tokens, 0), context_from
        bound_lowered_want = not exact
    want = multiple * each
    return Demand(
        prompt_tokens=prompt_tokens,
        exact=exact,
        can_count=can_count,
        multiple=multiple,
        want=want,
        least=want if over == "refuse" else multiple * min(each, min_output_tokens),
        bound_lowered_want=bound_lowered_want,
        ceiling_from=ceiling_from,
        enough=multiple * enough_output_tokens,
    )


def _smaller_context(model: int | None, caps: CallCaps) -> tuple[int | None, str]:
    if caps.context_tokens is not None and (model is None or caps.context_tokens < model):
        return caps.context_tokens, caps.context_limit or "call.context_tokens"
    return model, "context"


def _first(asked: int | None, default: int | None) -> tuple[int, str]:
    if asked is not None:
        return asked, "asked"
    return (default, "default") if default is not None else (NO_CEILING_TOKENS, "none")
