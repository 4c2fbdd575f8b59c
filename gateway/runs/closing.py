"""Halt, resume and close. A run closes in steps, each of which may be repeated, so that whoever asks again joins in and gets the same receipt.

The results are declared; its closing is durable; what runs is cut, or has a while to end; the last call is settled; the receipt is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from gateway.accounting.commands import BeginClosing, CloseCampaign, Declare, Halt, Results, Resume, WriteReceipt
from gateway.accounting.entries import Posting
from gateway.accounting.receipt import given_out
from gateway.accounting.replay import results_of
from gateway.accounting.usage import Outcome
from gateway.errors import CommandRejected, GatewayError
from gateway.ledger.state import CampaignStanding, RunStanding
from gateway.runs.book import Book
from gateway.runs.campaigns import CampaignState, RunState, doubt
from gateway.runs.declined import Declined
from gateway.runs.in_flight import InFlight


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The receipt that stands."""

    content: Mapping[str, object]
    """As its driver keeps it, with its hash."""
    hash: str
    conflicts: tuple[str, ...] = ()


class Closing:
    def __init__(
        self, book: Book, in_flight: InFlight, on_change: Callable[[], None], background: Callable[[Coroutine[object, object, object]], object]
    ) -> None:
        self._book = book
        self._in_flight = in_flight
        self._on_change = on_change
        self._background = background

    async def halt(self, campaign: CampaignState, reason: str = "") -> None:
        """No new admissions. Halting what is halted does nothing."""
        async with campaign.lock:
            _must_serve(campaign, "halted")
            if campaign.state is CampaignStanding.HALTED:
                return
            with doubt(campaign, self._on_change):
                await self._book.post(Halt(campaign=campaign.campaign, at_ms=self._book.now_ms(), reason=reason))
                campaign.state, campaign.reason = CampaignStanding.HALTED, reason

    async def resume(self, campaign: CampaignState, reason: str = "") -> None:
        async with campaign.lock:
            _must_serve(campaign, "resumed")
            if campaign.state is CampaignStanding.OPEN:
                return
            await self._book.post(Resume(campaign=campaign.campaign, at_ms=self._book.now_ms(), reason=reason))
            campaign.state, campaign.reason = CampaignStanding.OPEN, ""
        self._on_change()

    async def close_run(self, campaign: CampaignState, run: RunState, *, results: Results | None = None, drain_s: int = 0, reason: str = "") -> Receipt:
        """The receipt that stands when it returns. Closing a closed run gives it again, or the next one where results are new."""
        await self._begin(campaign, run, results, reason)
        if run.state is RunStanding.CLOSING:
            await self._drain(run, drain_s)
        async with run.lock:
            return await self._receipt(campaign, run)

    async def close_campaign(self, campaign: CampaignState, *, close_s: int, drain_s: int = 0) -> Receipt:
        async with campaign.lock:
            if campaign.serves:
                await self._begin_campaign(campaign)
        if campaign.state is CampaignStanding.CLOSING:
            await self._close_runs(campaign, close_s, drain_s)
        async with campaign.lock:
            return await self._campaign_receipt(campaign)

    async def settled(self, campaign: CampaignState, run: RunState) -> None:
        """A call of a closed run was settled late, or corrected: its next receipt is due."""
        async with run.lock:
            await self._receipt(campaign, run)

    async def _begin(self, campaign: CampaignState, run: RunState, results: Results | None = None, reason: str = "") -> None:
        """Results first: where these may not stand, nothing has been closed. No call is admitted between the two."""
        async with run.lock:
            if campaign.runs.get(run.run) is not run:
                raise Declined(f"Run {run.run!r} was not opened.", "Its opening failed.", "There is nothing to close.", code="not_found")
            with doubt(run, self._on_change):
                if results is not None:
                    await self._declare(run, results, reason)
                if run.state is RunStanding.OPEN:
                    await self._book.post(BeginClosing(campaign=run.campaign, run=run.run, at_ms=self._book.now_ms()))
                    run.state = RunStanding.CLOSING

    async def _drain(self, run: RunState, drain_s: int) -> None:
        """Until the last call of the run is settled; what still runs after `drain_s` is cut."""
        if drain_s <= 0:
            self._in_flight.cut_run(run.campaign, run.run, Outcome.CLOSED_CUT)
            await self._in_flight.drained_run(run.campaign, run.run)
            return
        timer = asyncio.get_running_loop().call_later(drain_s, self._in_flight.cut_run, run.campaign, run.run, Outcome.CLOSED_CUT)
        try:
            await self._in_flight.drained_run(run.campaign, run.run)
        finally:
            timer.cancel()

    async def _declare(self, run: RunState, results: Results, reason: str) -> None:
        """What is given is added to what stands."""
        command = Declare(campaign=run.campaign, run=run.run, at_ms=self._book.now_ms(), results=results, reason=reason)
        try:
            posting = await self._book.post(command)
        except CommandRejected as rejected:
            mend = "Declare what may stand; where it corrects what was declared, give a reason."
            raise Declined(f"These results of run {run.run!r} are not declared.", f"{rejected}.", mend) from rejected
        run.results = results_of(posting.content)

    async def _receipt(self, campaign: CampaignState, run: RunState) -> Receipt:
        """Written where one is due, else the one that stands. The caller holds the run's lock."""
        posting = await self._book.post(WriteReceipt(campaign=run.campaign, run=run.run, at_ms=self._book.now_ms()))
        run.state = RunStanding.CLOSED
        if not posting.standing and campaign.state is CampaignStanding.CLOSED:
            self._background(self._next_campaign_receipt(campaign))
        return _receipt_of(posting)

    async def _begin_campaign(self, campaign: CampaignState) -> None:
        campaign.ending = True
        try:
            with doubt(campaign, self._on_change):
                await self._book.post(CloseCampaign(campaign=campaign.campaign, at_ms=self._book.now_ms()))
                campaign.state = CampaignStanding.CLOSING
        except GatewayError:
            campaign.ending = False
            raise

    async def _close_runs(self, campaign: CampaignState, close_s: int, drain_s: int) -> None:
        """Each open run in the same way, for `close_s` at the longest: those left go on and the campaign's next receipt holds them."""
        left = [run for run in campaign.runs.values() if run.state is not RunStanding.CLOSED]
        if not left:
            return
        await asyncio.gather(*(self._begin(campaign, run) for run in left))
        closings = [asyncio.create_task(self.close_run(campaign, run, drain_s=drain_s)) for run in left]
        done, pending = await asyncio.wait(closings, timeout=close_s)
        for closing in pending:
            self._background(_end_of(closing))
        await asyncio.gather(*done)

    async def _next_campaign_receipt(self, campaign: CampaignState) -> None:
        async with campaign.lock:
            await self._campaign_receipt(campaign)

    async def _campaign_receipt(self, campaign: CampaignState) -> Receipt:
        posting = await self._book.post(WriteReceipt(campaign=campaign.campaign, run="", at_ms=self._book.now_ms()))
        campaign.state = CampaignStanding.CLOSED
        return _receipt_of(posting)


async def _end_of(closing: asyncio.Future[Receipt]) -> None:
    await closing


def _must_serve(campaign: CampaignState, what: str) -> None:
    if not campaign.serves:
        raise Declined(f"Campaign {campaign.campaign!r} is not {what}.", f"It is {campaign.state}.", "Nothing follows a closing: open another campaign.")


def _receipt_of(posting: Posting) -> Receipt:
    entry_hash = posting.entries[0].hash
    conflicts = cast("Sequence[str]", posting.content.get("conflicts", ()))
    return Receipt(content=given_out(posting.content, entry_hash), hash=entry_hash.hex(), conflicts=tuple(conflicts))
