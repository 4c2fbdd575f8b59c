"""What stands in the books at one moment: all that decides whether a command may be written.

It follows from the entries alone: `Books` changes it as it posts, `Standing.replay` makes it again from what was written. Calls that are open are held
here; one that is closed is asked of the `Past` when a command names it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

from gateway.accounting.chain import FIRST_HASH
from gateway.accounting.commands import Results
from gateway.accounting.entries import LedgerEntry
from gateway.accounting.limit import Account, Scope
from gateway.accounting.quantity import Amounts, Quantity
from gateway.accounting.tally import Content, RunTally


class CallStatus(StrEnum):
    RESERVED = "reserved"
    SETTLED = "settled"
    VOIDED = "voided"
    EXPIRED = "expired"
    ADJUSTED = "adjusted"


class RunStatus(StrEnum):
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


@dataclass(slots=True, kw_only=True)
class CallBook:
    """One call. Its part of each account follows from `reserved` and `charge`."""

    call_id: str
    campaign: str
    run: str
    accounts: tuple[Account, ...]
    reserved: Amounts
    charge: Amounts | None = None
    """What is charged now; None while it is reserved."""
    status: CallStatus = CallStatus.RESERVED
    reserve_number: int = 0
    closing_number: int = 0
    """The entry that stands for how it ended."""


@dataclass(slots=True, kw_only=True)
class RunBook:
    campaign: str
    run: str
    opened_at_ms: int
    opening_number: int
    opening_hash: bytes
    opening: Content
    status: RunStatus = RunStatus.OPEN
    results: Results | None = None
    declared_number: int = 0
    closing_number: int = 0
    calls: int = 0
    """Reserved and not voided."""
    first_call_ms: dict[str, int] = field(default_factory=dict, compare=False)
    """By lane, when the first of these was admitted, as the store read it at start; later ones are not entered."""
    preflighted: bool = False
    """A preflight has passed."""
    warned: set[str] = field(default_factory=set)
    """Accounts of which its agent was warned, by their names in the ledger."""
    unsettled: int = 0
    receipt: int = 0
    """How many receipts are written."""
    receipt_number: int = 0
    receipt_due: bool = True
    """Something happened that no receipt holds yet."""
    tally: RunTally | None = field(default=None, compare=False)
    """Sums over its chain as far as it is written; None where they must be made from the chain first."""

    @property
    def chain(self) -> str:
        return run_chain(self.campaign, self.run)


@dataclass(slots=True, kw_only=True)
class CampaignBook:
    campaign: str
    opened_at_ms: int
    opening_number: int
    opening: Content
    halted: bool = False
    halt_reason: str = ""
    changed_number: int = 0
    """Its last halt or resume."""
    closing_number: int = 0
    receipt: int = 0
    receipt_number: int = 0
    receipt_due: bool = True
    runs: dict[str, RunBook] = field(default_factory=dict)
    idempotency: dict[str, str] = field(default_factory=dict)
    """Idempotency key to run."""

    @property
    def chain(self) -> str:
        return campaign_chain(self.campaign)


@dataclass(slots=True, kw_only=True)
class KeyBook:
    key_id: str
    digest: str
    campaign: str
    run: str
    lane: str
    issued_at_ms: int
    issued_number: int
    revoked_number: int = 0


@dataclass(slots=True)
class Head:
    """The end of a chain."""

    sequence: int
    hash: bytes


class Past(Protocol):
    """What the books ask of what was written before."""

    def entry(self, number: int) -> LedgerEntry: ...
    def history(self, chain: str) -> Iterable[Content]:
        """Contents of a chain's entries in order, those of the batch at hand included."""
        ...

    def call(self, call_id: str) -> CallBook | None:
        """A call that is not open."""
        ...


GATEWAY_CHAIN = "gateway"


def campaign_chain(campaign: str) -> str:
    return f"campaign:{campaign}"


def run_chain(campaign: str, run: str) -> str:
    return f"run:{campaign}/{run}"


@lru_cache(maxsize=4096)
def account_of(key: str) -> Account:
    """The account that `Account.key` named."""
    parts, part, escaped = [], "", False
    for letter in key:
        if escaped:
            part, escaped = part + letter, False
        elif letter == "\\":
            escaped = True
        elif letter == "|":
            parts.append(part)
            part = ""
        else:
            part += letter
    scope, subject, lane, model, quantity, window = (*parts, part)
    return Account(scope=Scope(scope), subject=subject, lane=lane, model=model, quantity=Quantity(quantity), window=window)


@dataclass(slots=True)
class Standing:
    """The whole of it. `number` is the last entry's."""

    number: int = 0
    at_ms: int = 0
    heads: dict[str, Head] = field(default_factory=dict)
    campaigns: dict[str, CampaignBook] = field(default_factory=dict)
    keys: dict[str, KeyBook] = field(default_factory=dict)
    calls: dict[str, CallBook] = field(default_factory=dict)
    """Open calls only."""

    def head(self, chain: str) -> Head:
        """A run's chain begins with the hash of its opening, every other with 32 zero bytes."""
        standing = self.heads.get(chain)
        if standing is None:
            first = FIRST_HASH
            if chain.startswith("run:"):
                campaign, _, run = chain[4:].partition("/")
                first = self.campaigns[campaign].runs[run].opening_hash
            standing = self.heads[chain] = Head(0, first)
        return standing

    def run(self, campaign: str, run: str) -> RunBook | None:
        opened = self.campaigns.get(campaign)
        return opened.runs.get(run) if opened else None
