"""What is known of each campaign and run while the gateway serves. Their state follows the ledger: it changes when a commit is durable, never before.

Between posting what stops calls and its commit nobody can say whether it stands: such a campaign, run or key is *in doubt*; its calls wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from gateway.accounting.commands import Results
from gateway.ledger.state import CampaignRecord, CampaignStanding, RunRecord, RunStanding
from gateway.policy.declaration import Policy
from gateway.policy.resolve import NO_ORIGINS, Origins
from gateway.runs.deadlines import Times, times_of
from gateway.runs.declined import Declined
from gateway.runs.first_calls import FirstCalls
from gateway.runs.plan import UNPINNED, Made, PlannedRun
from gateway.runs.telling import Telling
from gateway.runs.utilities import Utilities


@dataclass(slots=True, kw_only=True, eq=False)
class RunState:
    campaign: str
    run: str
    opened_at_ms: int
    label: str = ""
    task: str = ""
    made: Made = UNPINNED
    idempotency_key: str = ""
    arguments_hash: str = ""
    limits_hash: str = ""
    state: RunStanding = RunStanding.OPEN
    results: Results | None = None
    calls_before: int = 0
    """Calls that stood on record when this process began."""
    first_calls: FirstCalls = field(default_factory=FirstCalls)
    preflighted: bool = False
    """A preflight has passed: it is on record."""
    telling: Telling = field(default_factory=Telling)
    """What its agent was told of its limits."""
    utilities: Utilities = field(default_factory=Utilities)
    in_doubt: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Opening, keys, closing and receipts of one run, one at a time."""

    @property
    def first_call_ms(self) -> dict[str, int]:
        """When each lane's first call that was sent was admitted."""
        return self.first_calls.by_lane()


@dataclass(slots=True, kw_only=True, eq=False)
class CampaignState:
    campaign: str
    opened_at_ms: int
    policy: Policy
    policy_name: str
    policy_hash: str
    policy_problem: str = ""
    """Why `policy` is not its own: it serves no more, and this version can't read it."""
    limits_hash: str = ""
    """Of the effective limits, the gateway's own included."""
    origins: Origins = field(default_factory=dict)
    """Where its file, as it stood then, and gateway.toml set each limit."""
    planned_runs: int | None = None
    plan: tuple[PlannedRun, ...] = ()
    state: CampaignStanding = CampaignStanding.OPEN
    reason: str = ""
    """Of its halt."""
    ending: bool = False
    """Its closing was posted: no run opens."""
    runs: dict[str, RunState] = field(default_factory=dict)
    by_idempotency_key: dict[str, RunState] = field(default_factory=dict)
    in_doubt: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Halt, resume and closing, one at a time."""
    times: Times = field(init=False)
    """What its policy says of time."""

    def __post_init__(self) -> None:
        self.times = times_of(self.policy)

    @property
    def serves(self) -> bool:
        """Open or halted: its open runs may have calls."""
        return self.state in (CampaignStanding.OPEN, CampaignStanding.HALTED)


class Doubtful(Protocol):
    in_doubt: int


@contextmanager
def doubt(subject: Doubtful, on_change: Callable[[], None]) -> Iterator[None]:
    """While something that stops its calls is posted and not yet durable. Its new state is set within, so that waiting calls are asked again after."""
    subject.in_doubt += 1
    try:
        yield
    finally:
        subject.in_doubt -= 1
        on_change()


class Campaigns:
    """All campaigns and runs by name."""

    def __init__(self) -> None:
        self._campaigns: dict[str, CampaignState] = {}

    def campaign(self, name: str) -> CampaignState:
        """Raises Declined where there is none."""
        found = self._campaigns.get(name)
        if found is None:
            raise Declined(
                f"There is no campaign {name!r}.", "None was opened under this name.", "`gateway campaign list` shows those there are.", code="not_found"
            )
        return found

    def run(self, campaign: str, name: str) -> tuple[CampaignState, RunState]:
        """Raises Declined where there is none."""
        state = self.campaign(campaign)
        found = state.runs.get(name)
        if found is None:
            raise Declined(
                f"There is no run {name!r} in campaign {campaign!r}.",
                "None was opened under this name.",
                "`gateway run list` shows those there are.",
                code="not_found",
            )
        return state, found

    def find(self, name: str) -> CampaignState | None:
        return self._campaigns.get(name)

    def all(self) -> tuple[CampaignState, ...]:
        """In the order of opening."""
        return tuple(self._campaigns.values())

    def add(self, campaign: CampaignState) -> None:
        self._campaigns[campaign.campaign] = campaign

    def remove(self, campaign: CampaignState) -> None:
        del self._campaigns[campaign.campaign]


def campaign_of(record: CampaignRecord, policy: Policy, limits_hash: str, gateway_origins: Origins = NO_ORIGINS, problem: str = "") -> CampaignState:
    return CampaignState(
        campaign=record.campaign,
        opened_at_ms=record.opened_at_ms,
        policy=policy,
        policy_name=record.policy_name,
        policy_hash=record.policy_hash,
        policy_problem=problem,
        limits_hash=limits_hash,
        origins={**gateway_origins, **record.origins},
        planned_runs=record.planned_runs,
        plan=tuple(PlannedRun(run=run, task=task, label=label, repeat=repeat) for run, task, label, repeat in record.plan),
        state=record.standing,
        reason=record.reason,
        ending=record.standing in (CampaignStanding.CLOSING, CampaignStanding.CLOSED),
    )


def add_run(campaign: CampaignState, run: RunState) -> None:
    campaign.runs[run.run] = run
    if run.idempotency_key:
        campaign.by_idempotency_key[run.idempotency_key] = run


def remove_run(campaign: CampaignState, run: RunState) -> None:
    del campaign.runs[run.run]
    if run.idempotency_key:
        del campaign.by_idempotency_key[run.idempotency_key]


def run_of(record: RunRecord) -> RunState:
    return RunState(
        campaign=record.campaign,
        run=record.run,
        opened_at_ms=record.opened_at_ms,
        label=record.label,
        task=record.task,
        made=Made(repeat=record.repeat, pins=dict(record.pins)),
        idempotency_key=record.idempotency_key,
        arguments_hash=record.arguments_hash,
        limits_hash=record.limits_hash,
        state=record.standing,
        results=record.results,
        calls_before=record.calls,
        first_calls=FirstCalls(record.first_call_ms),
        preflighted=record.preflighted,
        telling=Telling(record.warned),
    )
