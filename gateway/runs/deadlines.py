"""When a run, a lane of it, or a campaign is over: from what was declared, when it was opened, and when its first calls were admitted. Pure.

The rule: a deadline is a moment of the ledger's clock and nothing extends it. A wall is a run's, and cuts what runs; a span is a campaign's, and cuts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.accounting.limit import Shortfall
from gateway.policy.declaration import Policy
from gateway.policy.declared import WALL_SECONDS, Declared
from gateway.policy.resolve import NO_ORIGINS, Origins, span_limit

BUDGET_REACHED: Final = "run_budget_reached"
WINDOW_OVER: Final = "window_over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    at_ms: int
    limit_name: str
    ceiling_s: int
    started_ms: int
    """From when its seconds count."""
    code: str
    """Of the final refusal that follows: `run_budget_reached`, `window_over`."""
    lane: str = ""
    """Of a wall of one lane."""
    origin: str = ""

    def passed(self, now_ms: int) -> bool:
        return now_ms >= self.at_ms

    def shortfall(self, now_ms: int) -> Shortfall:
        """In whole seconds: what is allowed, what has passed, and the one more that a call would need."""
        elapsed_s = max(0, now_ms - self.started_ms) // 1000
        return Shortfall(name=self.limit_name, ceiling=self.ceiling_s, settled=elapsed_s, reserved=0, asked=1, origin=self.origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What a policy says of time."""

    walls: tuple[Declared, ...] = ()
    """Of a run and of its lanes, narrow to broad."""
    from_opening: bool = False
    """Walls count from the run's opening, else from the first call."""
    span: Declared | None = None

    @property
    def run_wall(self) -> Declared | None:
        """Of the whole run."""
        return next((wall for wall in self.walls if not wall.lane), None)


def times_of(policy: Policy) -> Times:
    walls = tuple(item for item in policy.declared if item.quantity == WALL_SECONDS)
    return Times(walls=walls, from_opening=policy.run.wall_from == "opening", span=span_limit(policy))


def wall_deadlines(times: Times, *, opened_ms: int, first_call_ms: Mapping[str, int], origins: Origins = NO_ORIGINS) -> tuple[Deadline, ...]:
    """Of one run, narrow to broad; a clock that has not begun has none. `first_call_ms`: by lane."""
    found = []
    for wall in times.walls:
        started_ms = opened_ms if times.from_opening else _first(first_call_ms, wall.lane)
        if started_ms is not None:
            found.append(_deadline(wall, started_ms, BUDGET_REACHED, origins))
    return tuple(found)


def span_deadline(times: Times, opened_ms: int, origins: Origins = NO_ORIGINS) -> Deadline | None:
    """Of a campaign that was opened then."""
    return None if times.span is None else _deadline(times.span, opened_ms, WINDOW_OVER, origins)


def earliest(deadlines: Iterable[Deadline | None], lane: str | None = None) -> Deadline | None:
    """The first to come, of those that concern this lane; of several at one moment the narrowest, which stands first."""
    found = (each for each in deadlines if each is not None and (lane is None or each.lane in ("", lane)))
    return min(found, key=lambda each: each.at_ms, default=None)


def _first(first_call_ms: Mapping[str, int], lane: str) -> int | None:
    return first_call_ms.get(lane) if lane else min(first_call_ms.values(), default=None)


def _deadline(item: Declared, started_ms: int, code: str, origins: Origins) -> Deadline:
    return Deadline(
        at_ms=started_ms + item.ceiling * 1000,
        limit_name=item.name,
        ceiling_s=item.ceiling,
        started_ms=started_ms,
        code=code,
        lane=item.lane,
        origin=origins.get(item.name, ""),
    )
