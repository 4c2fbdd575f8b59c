"""Appending to a chain: what every entry bears, its canonical form and its hash."""

from __future__ import annotations

from gateway.accounting import chain
from gateway.accounting.commands import Command
from gateway.accounting.contents import KINDS, Body
from gateway.accounting.entries import LedgerEntry, Posting, PostingLine
from gateway.accounting.standing import CampaignBook, Past, RunBook, Standing
from gateway.errors import CommandRejected


class Journal:
    """The pen: writes over one standing, and finds again what was written."""

    def __init__(self, standing: Standing, past: Past) -> None:
        self.standing = standing
        self.past = past

    def campaign_of(self, campaign: str) -> CampaignBook:
        found = self.standing.campaigns.get(campaign)
        if found is None:
            raise CommandRejected(f"no campaign {campaign}")
        return found

    def run_of(self, campaign: str, run: str) -> RunBook:
        found = self.standing.run(campaign, run)
        if found is None:
            raise CommandRejected(f"no run {campaign}/{run}")
        return found

    def stands(self, number: int) -> Posting:
        """The entry that stands: nothing is written."""
        entry = self.past.entry(number)
        return Posting(entries=(entry,), lines=(), standing=True, content=chain.decode(entry.body))

    def write(
        self,
        name: str,
        command: Command,
        content: Body,
        *,
        campaign: str = "",
        run: str = "",
        call_id: str = "",
        lines: tuple[PostingLine, ...] = (),
        kind: str = "",
    ) -> LedgerEntry:
        """Appends to the chain of that name. Raises ValueError, with nothing changed, for content that may not stand."""
        standing = self.standing
        head = standing.head(name)
        kind = kind or KINDS[type(command)]
        at_ms = command.at_ms
        number, sequence = standing.number + 1, head.sequence + 1
        content.update(number=number, chain=name, sequence=sequence, kind=kind, at_ms=at_ms)
        for key, value in (("campaign", campaign), ("run", run), ("call", call_id)):
            if value:
                content[key] = value
        if lines:
            content["postings"] = [(account.key, reserved, settled) for account, reserved, settled in lines]
        body = chain.encode(content)
        previous = head.hash
        head.hash = digest = chain.link(previous, body)
        head.sequence = sequence
        standing.number = number
        standing.at_ms = max(standing.at_ms, at_ms)
        if run and name[:4] == "run:" and (tally := standing.campaigns[campaign].runs[run].tally) is not None:
            tally.add(content)
        return LedgerEntry(
            number=number,
            chain=name,
            sequence=sequence,
            kind=kind,
            at_ms=at_ms,
            campaign=campaign,
            run=run,
            call_id=call_id,
            body=body,
            previous_hash=previous,
            hash=digest,
        )
