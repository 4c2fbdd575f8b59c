"""The decision table of the budget contract: what happens to one call, seen from one moment. Pure.

`decide` matches brute force over every possible output; its properties are tests in tests/unit/accounting/test_decision.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gateway.accounting.limit import Balance, Limit, Shortfall


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a call wants of its limits. Per-call caps and the model's context are already folded into `want`."""

    prompt_tokens: int
    exact: bool
    """The prompt was counted, not bounded."""
    can_count: bool
    """The model has a counter that can turn the bound into a count."""
    multiple: int
    """Choices x prompts: every output is a multiple of it."""
    want: int
    """Largest output, over all choices and prompts."""
    least: int
    """Smallest output worth sending; never more than `want`."""
    bound_lowered_want: bool
    """The prompt is a bound and `want` is smaller because of it."""
    ceiling_from: str
    """What made `want` what it is: `asked`, `default`, `context`, `call.output_tokens`."""
    enough: int
    """`enough_output_tokens` x multiple: with this a clamp is no stub."""


class Patience(StrEnum):
    """How long the call has waited picks the floor it accepts."""

    REACH = "reach"
    ENOUGH = "enough"
    LEAST = "least"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitView:
    """One limit of the call at this moment."""

    limit: Limit
    balance: Balance
    aside: int = 0
    """Set aside on this account for another call."""
    other_flows: int = 0
    """Other flows that wait on this limit."""
    reopens: bool = False
    """The window ends before this call's wait would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    output: int
    clamped_by: str | None = None
    """Name of the limit that made output smaller than wanted."""


@dataclass(frozen=True, slots=True)
class Count:
    """The prompt must be counted before anything can be decided."""


@dataclass(frozen=True, slots=True)
class Final:
    shortfall: Shortfall


@dataclass(frozen=True, slots=True)
class Wait:
    shortfall: Shortfall


Decision = Send | Count | Final | Wait


def decide(view: Sequence[LimitView], demand: Demand, patience: Patience) -> Decision:
    """The contract's table, first row that fits. `view` is ordered narrow to broad."""
    raise NotImplementedError
