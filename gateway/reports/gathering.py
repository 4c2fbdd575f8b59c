"""A campaign read from its chains, run by run: each run's calls are looked at and let go before the next is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, cast

from gateway.accounting.chain import decode
from gateway.accounting.entries import LedgerEntry
from gateway.accounting.receipt import given_out, run_tally
from gateway.accounting.tally import RunTally
from gateway.errors import NotFound
from gateway.reports.call_rows import Row, call_rows
from gateway.reports.run_rows import run_row


class Chains(Protocol):
    """What reports ask of the reading side."""

    def chain(self, name: str, *, as_of: int = 0) -> Iterator[LedgerEntry]: ...
    def last_number(self, campaign: str) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRead:
    """One run, while it is looked at."""

    row: Row
    calls: dict[str, Row]
    tally: RunTally
    declared: list[Row]
    """What was declared of it, in order: the last stands, the others were corrected."""
    refused: list[Row]
    """The refusals that stand singly."""

    @property
    def sent(self) -> list[Row]:
        return [self.calls[call_id] for call_id in self.tally.calls]


@dataclass(slots=True, kw_only=True)
class RunChain:
    """A run's entries, one after the other, and what they come to."""

    opening: Row
    history: list[Row] = field(default_factory=list)
    receipts: list[Row] = field(default_factory=list)

    def add(self, entry: LedgerEntry) -> Row:
        """What the entry says."""
        content = decode(entry.body)
        self.history.append(content)
        if content["kind"] == "receipt":
            self.receipts.append(given_out(content, entry.hash))
        return content

    def read(self) -> RunRead:
        tally = run_tally(self.history)
        row = run_row(self.opening, tally, self.receipts)
        calls = call_rows(self.history, cast(str, row["label"]))
        return RunRead(row=row, calls=calls, tally=tally, declared=self._of("declare"), refused=self._of("refuse"))

    def _of(self, kind: str) -> list[Row]:
        return [content for content in self.history if content["kind"] == kind]


@dataclass(slots=True, kw_only=True)
class CampaignRead:
    """What stands in a campaign's own chain, and a row of each run."""

    campaign: str
    as_of: int
    opening: Row
    runs: list[Row] = field(default_factory=list)
    slots: dict[str, int] = field(default_factory=dict)
    """By upstream: how many calls the gateway gave it at once, else how many its engine said that it takes."""
    engines: dict[str, Row] = field(default_factory=dict)
    """By upstream, the last fingerprint."""
    closed_ms: int | None = None
    last_ms: int = 0
    """Of the last entry of the campaign or one of its runs."""


def read_campaign(ledger: Chains, campaign: str, look: Callable[[RunRead], object], *, as_of: int = 0) -> CampaignRead:
    """Calls `look` once a run, in the order of opening. Raises NotFound where there is no such campaign (then)."""
    found: CampaignRead | None = None
    openings: list[Row] = []
    as_of = as_of or ledger.last_number(campaign)
    for entry in ledger.chain(f"campaign:{campaign}", as_of=as_of):
        content = decode(entry.body)
        if found is None:
            found = CampaignRead(campaign=campaign, as_of=as_of, opening=content)
        _note(found, content, openings)
    if found is None:
        raise NotFound(f"there is no campaign {campaign}" + (f" as of entry {as_of}" if as_of else ""))
    for opening in openings:
        _read_run(ledger, found, opening, look)
    return found


def _note(found: CampaignRead, content: Row, openings: list[Row]) -> None:
    found.last_ms = max(found.last_ms, cast(int, content["at_ms"]))
    match content["kind"]:
        case "open_run":
            openings.append(content)
        case "close_campaign":
            found.closed_ms = cast(int, content["at_ms"])
        case "fingerprint":
            upstream, details = cast(str, content["upstream"]), cast(Row, content.get("details", {}))
            found.engines[upstream] = details
            if isinstance(slots := details.get("gateway_slots", details.get("slots")), int):
                found.slots[upstream] = slots


def _read_run(ledger: Chains, found: CampaignRead, opening: Row, look: Callable[[RunRead], object]) -> None:
    run = RunChain(opening=opening)
    for entry in ledger.chain(f"run:{found.campaign}/{opening['run']}", as_of=found.as_of):
        run.add(entry)
        found.last_ms = max(found.last_ms, entry.at_ms)
    read = run.read()
    found.runs.append(read.row)
    look(read)
