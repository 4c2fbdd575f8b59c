"""What stands of campaigns, runs and keys: read from the ledger once, at start.

Everything here follows from entries; nothing is stored beside them. Calls are not in it: their reservations were closed before this is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gateway.accounting.commands import Results
from gateway.accounting.standing import CampaignBook, KeyBook, RunBook, Standing


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
    plan: tuple[tuple[str, str, str, int], ...] = ()
    """Run, task, label, repeat of each planned run."""
    reason: str = ""
    """Of the last halt, while it is halted."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where its policy's file set each limit, as it stood when the campaign was opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    campaign: str
    run: str
    opened_at_ms: int
    standing: RunStanding
    label: str = ""
    task: str = ""
    repeat: int = 0
    pins: tuple[tuple[str, str], ...] = ()
    """Name and digest of what made it what it was."""
    idempotency_key: str = ""
    arguments_hash: str = ""
    limits_hash: str = ""
    results: Results | None = None
    """The last that was declared."""
    calls: int = 0
    """Calls that were reserved and not voided."""
    first_call_ms: Mapping[str, int] = field(default_factory=dict)
    """By lane, when the first of these was admitted."""
    preflighted: bool = False
    """A preflight has passed."""
    warned: frozenset[str] = frozenset()
    """Accounts of which its agent was warned."""


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


def state_of(standing: Standing) -> LedgerState:
    campaigns = list(standing.campaigns.values())
    return LedgerState(
        campaigns=tuple(map(_campaign, campaigns)),
        runs=tuple(_run(run) for campaign in campaigns for run in list(campaign.runs.values())),
        keys=tuple(map(_key, list(standing.keys.values()))),
    )


def _campaign(book: CampaignBook) -> CampaignRecord:
    standing = CampaignStanding.HALTED if book.halted else CampaignStanding.OPEN
    if book.closing_number:
        standing = CampaignStanding.CLOSED if book.receipt else CampaignStanding.CLOSING
    planned = book.opening.get("planned_runs")
    return CampaignRecord(
        campaign=book.campaign,
        opened_at_ms=book.opened_at_ms,
        policy_name=str(book.opening["policy_name"]),
        policy=str(book.opening["policy"]),
        policy_hash=str(book.opening["policy_hash"]),
        standing=standing,
        planned_runs=planned if isinstance(planned, int) else None,
        reason=book.halt_reason,
        origins=_origins(book),
        plan=_plan(book),
    )


def _origins(book: CampaignBook) -> dict[str, str]:
    details = book.opening.get("details")
    pairs = details.get("origins") if isinstance(details, dict) else None
    return {str(name): str(origin) for name, origin in pairs} if isinstance(pairs, list) else {}


def _plan(book: CampaignBook) -> tuple[tuple[str, str, str, int], ...]:
    details = book.opening.get("details")
    rows = details.get("plan") if isinstance(details, dict) else None
    return tuple((str(run), str(task), str(label), int(repeat)) for run, task, label, repeat in rows) if isinstance(rows, list) else ()


def _run(book: RunBook) -> RunRecord:
    said = {name: str(book.opening.get(name, "")) for name in ("label", "task", "idempotency_key", "arguments_hash", "limits_hash")}
    made = book.opening.get("details")
    details = made if isinstance(made, dict) else {}
    return RunRecord(
        campaign=book.campaign,
        run=book.run,
        repeat=int(details.get("repeat", 0)),
        pins=tuple((str(name), str(digest)) for name, digest in details.get("pins", ())),
        opened_at_ms=book.opened_at_ms,
        standing=RunStanding(book.status.value),
        results=book.results,
        calls=book.calls,
        first_call_ms=dict(book.first_call_ms),
        preflighted=book.preflighted,
        warned=frozenset(book.warned),
        **said,
    )


def _key(book: KeyBook) -> KeyRecord:
    return KeyRecord(
        key_id=book.key_id,
        digest=book.digest,
        campaign=book.campaign,
        run=book.run,
        lane=book.lane,
        issued_at_ms=book.issued_at_ms,
        revoked=bool(book.revoked_number),
    )
