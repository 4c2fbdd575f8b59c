"""Words that the format keeps for itself: a lane can't have them as its name."""

from __future__ import annotations

from typing import Final

from gateway.accounting.limit import Scope
from gateway.accounting.quantity import Quantity
from gateway.ids import LANE

FIXED_PLACES: Final = frozenset(str(scope) for scope in Scope)
LATER: Final = frozenset({"capture"})
"""Keys that a later version may know: said to be unknown, never taken for a slip of another name."""
OF_POLICIES: Final = {"wall_seconds": "run", "wall_from": "run", "attempts_per_task": "run", "require_room": "run", "span_seconds": "campaign"}
"""Limits that are none of the gateway's, and where they stand."""
RESERVED: Final = (
    FIXED_PLACES
    | {str(quantity) for quantity in Quantity}
    | {"prompt_tokens", "context_tokens"}
    | OF_POLICIES.keys()
    | {"day", "hour", "week", "month", "model", "policy", "timezone"}
)


def may_name_a_lane(word: str) -> bool:
    return word not in RESERVED and LANE.fullmatch(word) is not None
