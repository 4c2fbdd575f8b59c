"""What stands of campaigns, runs and keys: read from the ledger once, at start.

Everything here follows from entries; nothing is stored beside them. Calls are not in it: their reservations were closed before this is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gateway.accounting.commands import Results


class CampaignStanding(StrEnum):
    OPEN = "open"
    HALTED = "halted"
    CLOSING = "closing"
    CLOSED = "closed"
    """Its first receipt is written."""


class RunStanding(StrEnum):
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"
    """Its first receipt is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignRecord:
    campaign: str
    opened_at_ms: int
    policy_name: str
    policy: str
    """Canonical form, whole, as in its opening."""
    policy_hash: str
    standing: CampaignStanding
    planned_runs: int | None = None
    reason: str = ""
    """Of the last halt, while it is halted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    campaign: str
    run: str
    opened_at_ms: int
    standing: RunStanding
    label: str = ""
    task: str = ""
    idempotency_key: str = ""
    arguments_hash: str = ""
    limits_hash: str = ""
    results: Results | None = None
    """The last that was declared."""
    calls: int = 0
    """Calls that were reserved and not voided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    key_id: str
    digest: str
    """SHA-256 of the secret, in hex."""
    campaign: str
    run: str
    lane: str
    issued_at_ms: int
    revoked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """Each in the order of opening."""

    campaigns: tuple[CampaignRecord, ...] = ()
    runs: tuple[RunRecord, ...] = ()
    keys: tuple[KeyRecord, ...] = ()
