"""Where amounts are added up (accounts) and what they may not pass (limits)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from gateway.accounting.quantity import Quantity


class Scope(StrEnum):
    """Broadest last. `call` has caps but no account: nothing is added up over one call."""

    CALL = "call"
    RUN = "run"
    CAMPAIGN = "campaign"
    GATEWAY = "gateway"


SCOPE_ORDER = {Scope.CALL: 0, Scope.RUN: 1, Scope.CAMPAIGN: 2, Scope.GATEWAY: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One sum. The window is part of the name, so nothing is ever reset."""

    scope: Scope
    subject: str
    """`` for the gateway, `CAMPAIGN`, or `CAMPAIGN/RUN`."""
    quantity: Quantity
    lane: str = ""
    model: str = ""
    window: str = ""
    """`` for the scope's lifetime, else e.g. `day 2026-10-03 Asia/Shanghai`."""

    key: str = field(init=False, repr=False, compare=False)
    """The account's name in the ledger: six parts between bars; a bar or backslash in a model's name is escaped. Made once: every posting asks for it."""

    def __post_init__(self) -> None:
        model = self.model.replace("\\", "\\\\").replace("|", "\\|")
        object.__setattr__(self, "key", f"{self.scope}|{self.subject}|{self.lane}|{model}|{self.quantity}|{self.window}")

    def __hash__(self) -> int:
        return hash(self.key)


class Balance(NamedTuple):
    """Always the sum of postings. A tuple, because a dozen are made for every call."""

    reserved: int = 0
    settled: int = 0

    def plus(self, reserved: int, settled: int) -> Balance:
        return Balance(self.reserved + reserved, self.settled + settled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A ceiling on an account, as resolved for one call."""

    name: str
    """Its path in TOML: `run.foreground.requests`."""
    account: Account
    ceiling: int
    window_end_ms: int | None = None
    """When the window ends and a new account begins; None for a lifetime."""
    origin: str = ""
    """`file:line` of the policy that set it."""


class Limits(tuple[Limit, ...]):
    """The limits over one call, narrow to broad. They are remembered from call to call, so what every call asks of them is reckoned once."""

    @classmethod
    def of(cls, limits: Iterable[Limit]) -> Limits:
        return limits if isinstance(limits, cls) else cls(limits)

    @cached_property
    def accounts(self) -> tuple[Account, ...]:
        return tuple(limit.account for limit in self)

    @cached_property
    def rows(self) -> tuple[tuple[str, Quantity, int], ...]:
        """The account's key, what it counts, the ceiling."""
        return tuple((limit.account.key, limit.account.quantity, limit.ceiling) for limit in self)

    @cached_property
    def of_run(self) -> tuple[Limit, ...]:
        """Of the run, of its lane or of one model in it."""
        return tuple(limit for limit in self if limit.account.scope is Scope.RUN)

    @cached_property
    def of_whole_run(self) -> tuple[Limit, ...]:
        """Of the run alone, for as long as it lasts."""
        return tuple(limit for limit in self.of_run if not (limit.account.lane or limit.account.model or limit.account.window))

    @cached_property
    def of_any_call(self) -> tuple[tuple[Limit, str, int], ...]:
        """Those of which every call needs one, whatever it says; beside each its account's key and its ceiling."""
        every = (Quantity.REQUESTS, Quantity.TOOL_CALLS)
        return tuple((limit, limit.account.key, limit.ceiling) for limit in self if limit.account.quantity in every)


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCaps:
    """Limits of one call alone; None where there is none."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    """Over all choices and prompts."""
    context_tokens: int | None = None
    """Prompt and output of one choice together."""
    prompt_limit: str = ""
    """Name of the limit that `prompt_tokens` comes from."""
    output_limit: str = ""
    context_limit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The numbers of a limit that stood in the way, at that moment."""

    name: str
    ceiling: int
    settled: int
    reserved: int
    asked: int
    resets_at_ms: int | None = None
    origin: str = ""
