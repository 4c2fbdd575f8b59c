"""Names under which a body may set how much an engine makes: caps, minima, thinking budgets. An alias that one server ignores is another one's first.

The rule: every alias is removed before a body goes on, and one number stands under the one name that its engine honours.
"""

from __future__ import annotations

from typing import Any, Final

CAPS: Final = (
    "max_completion_tokens", "max_tokens", "n_predict", "max_output_tokens", "max_new_tokens", "max_length", "max_gen_len", "num_predict",
    "max_tokens_to_sample",
)  # fmt: skip
MINIMA: Final = ("min_tokens", "min_new_tokens", "min_completion_tokens", "min_length")
BUDGETS: Final = ("thinking_token_budget", "thinking_budget_tokens", "reasoning_budget_tokens", "thinking_budget", "reasoning_budget", "reasoning_tokens")
OURS: Final = frozenset({"rid", "request_id", "response_fields", "sse_ping_interval", "n_cmpl", "best_of"})
"""Never forwarded: the gateway's own to set, or without meaning but to mislead the meter."""
_LOWERED: Final = (*MINIMA, *BUDGETS)
_NESTED: Final = (("reasoning", "max_tokens"), ("thinking", "budget_tokens"), ("chat_template_kwargs", "thinking_budget"))


def lower(body: dict[str, Any], ceiling: int) -> None:
    """Minima and thinking budgets, also inside objects: these are copied before they are changed, for the body as received is read only."""
    for name in _LOWERED:
        if name in body and isinstance(value := body[name], int | float) and value > ceiling:
            body[name] = ceiling
    for name, inside in _NESTED:
        if name in body and isinstance(value := body[name], dict) and isinstance(value.get(inside), int | float) and value[inside] > ceiling:
            body[name] = {**value, inside: ceiling}
