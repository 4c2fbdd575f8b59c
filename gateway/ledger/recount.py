"""Everything that follows from the entries, made again one entry after the other, by the rules that the books wrote them by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from gateway.accounting.books import BECOMES, FOLLOWS, WRITTEN, closing_lines
from gateway.accounting.call_row import NOT_CLOSED, STATUS, closed, closing_row, opening_row
from gateway.accounting.entries import LedgerEntry
from gateway.accounting.quantity import NOTHING, Amounts, measures
from gateway.accounting.receipt import campaign_receipt, run_receipt
from gateway.accounting.standing import CallBook, CallStatus, account_of, campaign_chain
from gateway.accounting.tally import CampaignTally, Content, RunTally

BORNE = frozenset(("number", "chain", "sequence", "kind", "at_ms", "campaign", "run", "call"))
"""What every entry bears."""
MAY_FOLLOW = {status: {str(BECOMES[kind]) for kind, ruling in rulings.items() if ruling is WRITTEN} for status, rulings in FOLLOWS.items()}


class Misfit(Exception):
    """The entry at hand does not fit, or the one of `number`. The text says what about it."""

    def __init__(self, text: str, number: int | None = None) -> None:
        super().__init__(text)
        self.number = number


@dataclass(slots=True)
class Receipts:
    count: int = 0
    hash: str = ""
    due: bool = True


@dataclass(slots=True)
class Opening:
    content: Content
    hash: bytes
    tally: RunTally = field(default_factory=RunTally)
    receipts: Receipts = field(default_factory=Receipts)
    head: tuple[int, bytes] = (0, b"")


@dataclass(slots=True)
class Campaign:
    opening: Content
    hash: bytes
    tally: CampaignTally = field(default_factory=CampaignTally)
    receipts: Receipts = field(default_factory=Receipts)
    head: tuple[int, bytes] = (0, b"")


@dataclass(slots=True)
class Recount:
    openings: dict[tuple[str, str], Opening] = field(default_factory=dict)
    campaigns: dict[str, Campaign] = field(default_factory=dict)
    balances: dict[str, tuple[int, int]] = field(default_factory=dict)
    rows: dict[str, tuple[object, ...]] = field(default_factory=dict)
    calls: dict[str, CallBook] = field(default_factory=dict)

    def add(self, entry: LedgerEntry, content: Content) -> None:
        """Raises Misfit."""
        try:
            self._add(entry, content)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise Misfit(f"its content is not what a {entry.kind} says: {error!r}") from error
        for key, reserved, settled in cast("list[tuple[str, int, int]]", content.get("postings", [])):
            before = self.balances.get(key, (0, 0))
            self.balances[key] = (before[0] + reserved, before[1] + settled)

    def _add(self, entry: LedgerEntry, content: Content) -> None:
        if entry.kind == "open_campaign":
            if entry.campaign in self.campaigns:
                raise Misfit(f"campaign {entry.campaign} was opened before")
            self.campaigns[entry.campaign] = Campaign(content, entry.hash)
        if entry.chain.startswith("run:"):
            self._add_to_run(self.openings[entry.campaign, entry.run], entry, content)
        elif entry.chain.startswith("campaign:"):
            self._add_to_campaign(self.campaigns[entry.campaign], entry, content)
        elif entry.kind == "campaign_opened" and self.campaigns[cast(str, content["campaign"])].hash.hex() != content["opening"]:
            raise Misfit("it vouches for another opening")

    # -- runs

    def _add_to_run(self, run: Opening, entry: LedgerEntry, content: Content) -> None:
        if entry.kind == "reserve":
            self._reserve(run, content)
        elif entry.kind in STATUS:
            self._close(content)
            run.receipts.due = True
        elif entry.kind == "receipt":
            campaign = self.campaigns[entry.campaign]
            made = run_receipt(
                run.tally,
                run.content,
                policy_hash=cast(str, campaign.opening["policy_hash"]),
                head=_head(entry.chain, run.head),
                receipt=run.receipts.count + 1,
                replaces=_replaced(run.receipts),
            )
            if run.tally.unsettled:
                raise Misfit(f"it is a receipt though {run.tally.unsettled} calls are not settled")
            _same(made, content)
            run.receipts = Receipts(run.receipts.count + 1, entry.hash.hex(), False)
        elif entry.kind == "declare":
            run.receipts.due = True
        run.tally.add(content)
        run.head = (entry.sequence, entry.hash)

    def _reserve(self, run: Opening, content: Content) -> None:
        call_id = cast(str, content["call"])
        if call_id in self.calls:
            raise Misfit(f"call {call_id} was reserved before")
        if run.tally.closing_at_ms is not None:
            raise Misfit("its run was closing")
        amounts = Amounts(**cast("dict[str, int]", content["reserved"]))
        postings = cast("list[tuple[str, int, int]]", content.get("postings", []))
        amount = measures(amounts)
        accounts = tuple(account_of(key) for key, _, _ in postings)
        if [tuple(posting) for posting in postings] != [(account.key, amount[account.quantity], 0) for account in accounts]:
            raise Misfit("its postings are not what it reserves")
        self.calls[call_id] = CallBook(call_id=call_id, campaign="", run="", accounts=accounts, reserved=amounts, reserve_number=cast(int, content["number"]))
        self.rows[call_id] = opening_row(content, cast(str, run.content.get("label", ""))) + NOT_CLOSED

    def _close(self, content: Content) -> None:
        call = self.calls[cast(str, content["call"])]
        status = STATUS[cast(str, content["kind"])]
        if status not in MAY_FOLLOW[call.status]:
            raise Misfit(f"{content['kind']} may not follow: call {call.call_id} is {call.status}")
        if content.get("corrects", 0) != call.closing_number:
            raise Misfit(f"it corrects entry {content.get('corrects')}, but entry {call.closing_number} stands")
        charge = Amounts(**cast("dict[str, int]", content["charge"])) if status != "voided" else NOTHING
        lines = [[line.account.key, line.reserved, line.settled] for line in closing_lines(call, charge)]
        if lines != content.get("postings", []):
            raise Misfit("its postings do not bring its call from where it stood to its charge")
        call.charge, call.status, call.closing_number = charge, CallStatus(status), cast(int, content["number"])
        self.rows[call.call_id] = closed(self.rows[call.call_id], closing_row(content))

    # -- campaigns

    def _add_to_campaign(self, campaign: Campaign, entry: LedgerEntry, content: Content) -> None:
        if entry.kind == "open_run":
            key = (entry.campaign, cast(str, content["run"]))
            if key in self.openings:
                raise Misfit(f"run {key[1]} was opened before")
            self.openings[key] = Opening(content, entry.hash, head=(0, entry.hash))
        elif entry.kind == "run_receipt":
            run = self.openings[entry.campaign, cast(str, content["run"])]
            if (content["receipt"], content["hash"]) != (run.receipts.count, run.receipts.hash) or content["totals"] != run.tally.totals():
                raise Misfit("it vouches for another receipt")
        elif entry.kind == "receipt":
            runs = {name: run for (of, name), run in self.openings.items() if of == entry.campaign}
            made = campaign_receipt(
                campaign.tally,
                campaign.opening,
                unsettled={name: run.tally.unsettled for name, run in runs.items() if run.receipts.due},
                head=_head(campaign_chain(entry.campaign), campaign.head),
                receipt=campaign.receipts.count + 1,
                replaces=_replaced(campaign.receipts),
            )
            _same(made, content)
            campaign.receipts = Receipts(campaign.receipts.count + 1, entry.hash.hex(), False)
        campaign.tally.add(content)
        campaign.head = (entry.sequence, entry.hash)


def _head(chain: str, head: tuple[int, bytes]) -> dict[str, object]:
    return {"chain": chain, "sequence": head[0], "hash": head[1].hex()}


def _replaced(receipts: Receipts) -> dict[str, object] | None:
    return {"receipt": receipts.count, "hash": receipts.hash} if receipts.count else None


def _same(made: dict[str, object], content: Content) -> None:
    for name in sorted(made.keys() | (content.keys() - BORNE)):
        if made.get(name) != content.get(name):
            raise Misfit(f"its {name} is not what the chain before it adds up to")
