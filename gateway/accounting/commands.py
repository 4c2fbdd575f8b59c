"""Everything that can be asked of the books, as data. The call id (or the name given) is the idempotency key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gateway.accounting.entries import PostingLine, tuple_as
from gateway.accounting.limit import Account, Shortfall
from gateway.accounting.quantity import Amounts, measures
from gateway.accounting.usage import Outcome, Source, Usage
from gateway.frozen import frozen

Details = Mapping[str, object]
"""Canonical-JSON material: objects with ASCII keys, lists, valid Unicode strings, integers below 2**53, booleans. Unknown = the key is absent."""
NO_DETAILS: Details = MappingProxyType({})


@frozen
class Reserve:
    """A call is about to be sent. Holds `amounts` on every account."""

    call_id: str
    at_ms: int
    campaign: str
    run: str
    lane: str
    key_id: str
    model: str
    upstream: str
    dialect: str
    stream: bool
    accounts: tuple[Account, ...]
    amounts: Amounts
    prompt_source: str
    """`bound`, `engine`, `tiktoken:o200k_base`: what counted the prompt that is reserved."""
    ceiling: int
    """Output over all choices and prompts, as sent."""
    ceiling_from: str
    """`asked`, `default`, `context`, or the name of the limit."""
    clamped: bool = False
    waited_ms: int = 0
    details: Details = field(default_factory=lambda: NO_DETAILS)
    """What stands on record of the body (contract part 5): settings asked and sent, digests, names of tools, bytes by role, session headers."""

    lines: tuple[PostingLine, ...] = field(init=False, repr=False, compare=False)
    """What it will post. Made once: balances, books and the entry ask for it."""

    def __post_init__(self) -> None:
        amount = measures(self.amounts)
        object.__setattr__(self, "lines", tuple([tuple_as(PostingLine, (account, amount[account.quantity], 0)) for account in self.accounts]))


@frozen
class Settle:
    """A call has ended; the rest of its reservation is given back. Also after an `Expire` (late)."""

    call_id: str
    at_ms: int
    outcome: Outcome
    source: Source
    usage: Usage
    charge: Amounts
    """`concurrent` is 0, `requests` 1."""
    counted_by: str = ""
    flags: tuple[str, ...] = ()
    """`overshoot`, `cap_ignored`, `count_drift`, `clamped_part`, ..."""
    details: Details = field(default_factory=lambda: NO_DETAILS)
    """status, finish_reason, response_id, item_ids, tool_call_ids, model_reported, delivered bytes, times, phase of a time-out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Void:
    """Nothing was sent (evidence: the connect failed): everything is given back."""

    call_id: str
    at_ms: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire:
    """Lost sight of: charged the whole reservation until more is known. Outcome `lost`, source `unknown`."""

    call_id: str
    at_ms: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjust:
    """A correction of a settled call; names its evidence."""

    call_id: str
    at_ms: int
    usage: Usage
    charge: Amounts
    reason: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """A call was not admitted: charged to nothing."""

    call_id: str
    at_ms: int
    campaign: str
    run: str
    lane: str
    model: str
    code: str
    final: bool
    limit: Shortfall | None = None
    waited_ms: int = 0
    field_name: str = ""
    """The body field that the guard named, where it was the guard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalSummary:
    """Further refusals of the same run, code and limit: how many between two moments."""

    at_ms: int
    campaign: str
    run: str
    code: str
    final: bool
    limit_name: str
    count: int
    since_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCampaign:
    campaign: str
    at_ms: int
    policy_name: str
    policy: str
    """Canonical form, whole: what the gateway serves this campaign from."""
    policy_hash: str
    planned_runs: int | None = None
    details: Details = field(default_factory=lambda: NO_DETAILS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    campaign: str
    at_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    campaign: str
    at_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseCampaign:
    """From here on no run opens; the receipt follows."""

    campaign: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    campaign: str
    run: str
    at_ms: int
    label: str = ""
    task: str = ""
    idempotency_key: str = ""
    arguments_hash: str = ""
    """SHA-256 of the opening's arguments: a repeated key with other arguments is an error."""
    policy_hash: str = ""
    """Of the campaign's frozen version: a run's chain alone says what it ran under."""
    limits_hash: str = ""
    """Hash of the effective limits."""
    accounts: tuple[Account, ...] = ()
    """Of the quantity `runs`: each is charged 1. Their ceilings are checked by the caller in the same loop step."""
    details: Details = field(default_factory=lambda: NO_DETAILS)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginClosing:
    campaign: str
    run: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReceipt:
    """`run` empty: the campaign's own. The books make its totals; written only when due (contract part 5)."""

    campaign: str
    run: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What a driver declares about a run. Missing is unknown."""

    exit: int | None = None
    turn_end: str = ""
    """completed, aborted, failed, token_limit, time_limit, budget, blocked"""
    judge: str = ""
    """pass, fail, error"""
    outcomes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declare:
    campaign: str
    run: str
    at_ms: int
    results: Results
    reason: str = ""
    """Required when something stands already: then it is a correction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueKey:
    campaign: str
    run: str
    lane: str
    key_id: str
    digest: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeKey:
    key_id: str
    campaign: str
    at_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptClock:
    at_ms: int
    previous_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptRestore:
    at_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What an engine says it is; in the campaign's chain when a run opens and at each change."""

    campaign: str
    upstream: str
    at_ms: int
    details: Details


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that must stand on record and changes no account: `cancel_unconfirmed`, `count_drift`, `warn_at`."""

    campaign: str
    run: str
    call_id: str
    name: str
    at_ms: int
    details: Details = field(default_factory=lambda: NO_DETAILS)


CallCommand = Reserve | Settle | Void | Expire | Adjust
Command = (
    CallCommand
    | Refuse
    | RefusalSummary
    | OpenCampaign
    | Halt
    | Resume
    | CloseCampaign
    | OpenRun
    | BeginClosing
    | WriteReceipt
    | Declare
    | IssueKey
    | RevokeKey
    | AcceptClock
    | AcceptRestore
    | Fingerprint
    | Event
)
