"""The call that gate and forward handle, the ticket it waits with, and what it gets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from gateway.accounting.decision import Demand
from gateway.accounting.limit import Limit, Limits, Shortfall
from gateway.frozen import frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A call that was not admitted, and why. `final`: the agent should stop."""

    code: str
    final: bool
    shortfall: Shortfall | None = None
    message: str = ""
    field_name: str = ""
    waited_ms: int = 0
    engine: str = ""
    """Kind of the engine, where the refusal takes its own form."""


class Refused(Exception):
    """Carries a Refusal to the one place that answers (proxy/exchange.py)."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


@dataclass(slots=True, kw_only=True, eq=False)
class Ticket:
    """What the gate must know of a waiting call. Mutable only by the gate."""

    call_id: str
    campaign: str
    run: str
    lane: str
    engines: tuple[str, ...]
    """The upstreams that can serve it, in the order of the configuration: it needs a slot of one of them. (run, lane, engines) is its flow."""
    resolve: Callable[[int], Sequence[Limit]]
    """Limits at a moment (ms), narrow to broad: asked again when a window ends."""
    demand: Callable[[int, bool], Demand]
    """(prompt tokens, exact) -> what it wants."""
    bound_tokens: int
    """First prompt figure, at once."""
    bound_exact: bool
    """The first figure is already exact (or nothing better can be had)."""
    count: Callable[[], Awaitable[int]] | None
    """Exact count, asked for at most once; None where there is no counter. May raise Refused."""
    check: Callable[[int], Refusal | None] = field(default=lambda _now: None)
    """Deadline, span, closed run, revoked key, at a moment: a final refusal or None."""
    check_prompt: Callable[[int, bool], Refusal | None] = field(default=lambda _p, _exact: None)
    """What one call can never have (a prompt above its cap or the context): asked only with exact figures, or with a bound where there is no counter."""
    halted: Callable[[], bool] = field(default=lambda: False)
    takes: Callable[[str], bool] | None = None
    """Whether an upstream may serve it at this moment, where its policy asks for more than that the upstream can; None: whichever can."""
    deadline_ms: int | None = None
    """The earlier of the run's deadline and the campaign's span end, or None."""
    deadline: Callable[[], int | None] | None = None
    """In place of `deadline_ms`, where it may come to be known while the call waits: a run's clock may begin with another call."""
    clamp_after_ms: int = 10_000
    """From then on the call takes less than it could ever have, if it is enough."""
    queue_ms: int = 120_000
    """When its wait is over at the latest."""

    @property
    def ends_at_ms(self) -> int | None:
        """The deadline, as it is known now."""
        return self.deadline_ms if self.deadline is None else self.deadline()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """A limit that a call waited for."""

    shortfall: Shortfall
    """Its numbers when it was first in the way."""
    ms: int
    """How long it was, in all."""


@frozen
class Admission:
    """A slot, and room on all limits, taken in one step. The reservation is durable when it is handed out."""

    call_id: str
    upstream: str
    output: int
    """Over all choices and prompts."""
    clamped_by: str | None
    ceiling_from: str
    prompt_tokens: int
    prompt_exact: bool
    waited_ms: int
    limits: Limits
    demand: Demand
    clamp: Shortfall | None = None
    """The limit `clamped_by`, with its numbers at that moment."""
    delays: tuple[Delay, ...] = ()
    """The limits that were in its way while it waited, in order; empty: it waited for none."""
    position: int | None = None
    """How many calls of its flow were before it when it came; None: it did not wait."""
    at_home: bool | None = None
    """It went to the engine that served its flow last; None: there was none, or there is only one that can serve it."""
