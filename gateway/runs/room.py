"""Whether campaign, day and gateway can carry one more run to its end: what its own caps let it use, against what is left of theirs. Pure.

The rule: quantity by quantity, over the traffic of lanes and models that a limit adds up. Of this, what no cap of the run bounds asks for no room; what other
runs may still use is not counted. `concurrent` needs none: its places come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gateway.accounting.limit import Limit, Scope, Shortfall
from gateway.accounting.quantity import Quantity
from gateway.policy.declaration import Policy
from gateway.policy.declared import Declared
from gateway.runs.left import LimitLeft

SPENT: Final = frozenset(Quantity) - {Quantity.CONCURRENT, Quantity.RUNS}
"""Quantities that a run uses up."""

Cell = tuple[str, str]
"""Lane and model."""


def missing_room(policy: Policy, limits: Iterable[LimitLeft]) -> Shortfall | None:
    """The first of these limits, narrow to broad, that has less left than the run may use of it; None where there is room on all."""
    for found in limits:
        limit = found.limit
        if limit.account.scope is Scope.RUN or limit.account.quantity not in SPENT:
            continue
        asked = most_used(policy, limit)
        if asked > found.left:
            return Shortfall(
                name=limit.name,
                ceiling=limit.ceiling,
                settled=found.balance.settled,
                reserved=found.balance.reserved,
                asked=asked,
                resets_at_ms=limit.window_end_ms,
                origin=limit.origin,
            )
    return None


def most_used(policy: Policy, limit: Limit) -> int:
    """The most that the caps of a run let it use of a broader limit, over the traffic that they bound within it."""
    account = limit.account
    every = {(lane, model) for lane in policy.lane_names for model in policy.models_of(lane)}
    within = {cell for cell in every if account.lane in ("", cell[0]) and account.model in ("", cell[1])}
    window = account.window.partition(" ")[0]
    caps = [item for item in policy.declared if item.scope is Scope.RUN and item.quantity == account.quantity and item.window in ("", window)]
    bounded: set[Cell] = set()
    for cap in caps:
        concerned = {cell for cell in every if cap.concerns(*cell)}
        if concerned <= within:
            bounded |= concerned
    return most(bounded, caps)


def most(cells: Iterable[Cell], caps: Sequence[Declared]) -> int:
    """The largest sum over these cells that passes no cap: of all, of a lane, of a model, of a cell. Each cell is under one of them at least.

    From the source to each lane, from a lane to each of its models, from each model to the sink: the largest flow, by shortest augmenting paths.
    """
    unbounded = sum(cap.ceiling for cap in caps) + 1

    def room(lane: str, model: str) -> int:
        return min((cap.ceiling for cap in caps if (cap.lane, cap.model) == (lane, model)), default=unbounded)

    edges: dict[Cell, dict[Cell, int]] = {}
    for lane, model in cells:
        for one, other, width in ((SOURCE, (lane, ""), room(lane, "")), ((lane, ""), ("", model), room(lane, model)), (("", model), SINK, room("", model))):
            edges.setdefault(one, {})[other] = width
            edges.setdefault(other, {}).setdefault(one, 0)
    flow = 0
    while path := _path(edges):
        width = min(edges[one][other] for one, other in path)
        for one, other in path:
            edges[one][other] -= width
            edges[other][one] += width
        flow += width
    return min(flow, room("", ""))


SOURCE: Final[Cell] = ("", "")
SINK: Final[Cell] = ("", "\0")


def _path(edges: dict[Cell, dict[Cell, int]]) -> list[tuple[Cell, Cell]]:
    """A shortest way from source to sink on which something still fits; empty where there is none."""
    came_from: dict[Cell, Cell] = {SOURCE: SOURCE}
    ahead = [SOURCE]
    while ahead and SINK not in came_from:
        found = [(one, other) for one in ahead for other, width in edges.get(one, {}).items() if width > 0]
        ahead = []
        for one, other in found:
            if other not in came_from:
                came_from[other] = one
                ahead.append(other)
    path: list[tuple[Cell, Cell]] = []
    node = SINK
    while node in came_from and node != SOURCE:
        path.append((came_from[node], node))
        node = came_from[node]
    return path
