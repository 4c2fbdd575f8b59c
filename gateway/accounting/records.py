"""Commands that are about no call: campaigns, runs, keys, results, receipts, the clock. The rules of what may follow what are here, one function a command.

Some write two entries: what happens in one chain and is vouched for by another (a run's receipt stands in the run's chain, its hash in the campaign's).
"""

from __future__ import annotations

from typing import assert_never

from gateway.accounting.commands import (
    AcceptClock,
    AcceptRestore,
    BeginClosing,
    CloseCampaign,
    Declare,
    Event,
    Fingerprint,
    Halt,
    IssueKey,
    OpenCampaign,
    OpenRun,
    Resume,
    RevokeKey,
    WriteReceipt,
)
from gateway.accounting.contents import Body, content_of, results
from gateway.accounting.entries import LedgerEntry, Posting, PostingLine
from gateway.accounting.journal import Journal
from gateway.accounting.quantity import Amounts, measure
from gateway.accounting.receipt import campaign_receipt, campaign_tally, run_receipt, run_tally
from gateway.accounting.replay import apply
from gateway.accounting.standing import GATEWAY_CHAIN, CampaignBook, RunBook, RunStatus, campaign_chain
from gateway.accounting.tally import RunTally
from gateway.errors import CommandRejected

Record = (
    OpenCampaign
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


def post_record(journal: Journal, command: Record) -> Posting:
    match command:
        case OpenCampaign():
            return _open_campaign(journal, command)
        case Halt() | Resume():
            return _halt_or_resume(journal, command)
        case CloseCampaign():
            return _close_campaign(journal, command)
        case OpenRun():
            return _open_run(journal, command)
        case BeginClosing():
            return _begin_closing(journal, command)
        case WriteReceipt():
            return _run_receipt(journal, command) if command.run else _campaign_receipt(journal, command)
        case Declare():
            return _declare(journal, command)
        case IssueKey() | RevokeKey():
            return _key(journal, command)
        case AcceptClock() | AcceptRestore():
            return _written(journal, GATEWAY_CHAIN, command, content_of(command))
        case Fingerprint():
            journal.campaign_of(command.campaign)
            return _written(journal, campaign_chain(command.campaign), command, content_of(command), campaign=command.campaign)
        case Event():
            return _event(journal, command)
        case _:
            assert_never(command)


def _written(
    journal: Journal, chain: str, command: Record, content: Body, *, campaign: str = "", run: str = "", lines: tuple[PostingLine, ...] = ()
) -> Posting:
    entry = journal.write(chain, command, content, campaign=campaign, run=run, lines=lines)
    apply(journal.standing, entry.number, content, entry.hash)
    return Posting(entries=(entry,), lines=lines, content=content)


def _with_line(journal: Journal, posting: Posting, line: LedgerEntry, content: Body) -> Posting:
    """The posting, with the line of another chain that vouches for it."""
    apply(journal.standing, line.number, content, line.hash)
    return Posting(entries=(*posting.entries, line), lines=posting.lines, content=posting.content)


def _open_campaign(journal: Journal, command: OpenCampaign) -> Posting:
    content = content_of(command)
    if (stands := journal.standing.campaigns.get(command.campaign)) is not None:
        if all(stands.opening.get(name) == content.get(name) for name in ("policy_name", "policy_hash", "planned_runs")):
            return journal.stands(stands.opening_number)
        raise CommandRejected(f"campaign {command.campaign} was opened with other arguments: another policy version is another campaign")
    posting = _written(journal, campaign_chain(command.campaign), command, content, campaign=command.campaign)
    line: Body = {"opening": posting.entries[0].hash.hex(), "policy_hash": command.policy_hash}
    entry = journal.write(GATEWAY_CHAIN, command, line, campaign=command.campaign, kind="campaign_opened")
    return Posting(entries=(*posting.entries, entry), lines=(), content=content)


def _halt_or_resume(journal: Journal, command: Halt | Resume) -> Posting:
    campaign = journal.campaign_of(command.campaign)
    if campaign.closing_number:
        raise CommandRejected(f"campaign {command.campaign} is closed")
    if campaign.halted == isinstance(command, Halt):
        return journal.stands(campaign.changed_number)
    return _written(journal, campaign.chain, command, content_of(command), campaign=command.campaign)


def _close_campaign(journal: Journal, command: CloseCampaign) -> Posting:
    campaign = journal.campaign_of(command.campaign)
    if campaign.closing_number:
        return journal.stands(campaign.closing_number)
    posting = _written(journal, campaign.chain, command, content_of(command), campaign=command.campaign)
    line: Body = {"closing": posting.entries[0].hash.hex()}
    entry = journal.write(GATEWAY_CHAIN, command, line, campaign=command.campaign, kind="campaign_closed")
    return Posting(entries=(*posting.entries, entry), lines=(), content=posting.content)


def _open_run(journal: Journal, command: OpenRun) -> Posting:
    campaign = journal.campaign_of(command.campaign)
    key = command.idempotency_key
    if key and (name := campaign.idempotency.get(key)) is not None:
        stands = campaign.runs[name]
        if stands.opening.get("arguments_hash", "") != command.arguments_hash:
            raise CommandRejected(f"idempotency key {key} opened run {name} with other arguments")
        return journal.stands(stands.opening_number)
    if command.run in campaign.runs:
        raise CommandRejected(f"run {command.campaign}/{command.run} exists")
    if campaign.closing_number:
        raise CommandRejected(f"campaign {command.campaign} is closed: no run opens")
    amounts = Amounts(runs=1)
    lines = tuple(PostingLine(account, 0, measure(account.quantity, amounts)) for account in command.accounts)
    posting = _written(journal, campaign.chain, command, content_of(command), campaign=command.campaign, run=command.run, lines=lines)
    campaign.runs[command.run].tally = RunTally()
    return posting


def _begin_closing(journal: Journal, command: BeginClosing) -> Posting:
    run = journal.run_of(command.campaign, command.run)
    if run.status is not RunStatus.OPEN:
        return journal.stands(run.closing_number)
    return _written(journal, run.chain, command, content_of(command), campaign=command.campaign, run=command.run)


def _declare(journal: Journal, command: Declare) -> Posting:
    """What is given is added to what stands; where it differs from what stands it is a correction and needs a reason."""
    run = journal.run_of(command.campaign, command.run)
    if command.results.turn_end == "blocked" and run.calls:
        raise CommandRejected(f"run {command.campaign}/{command.run} made {run.calls} calls: it was not blocked")
    before = results(run.results) if run.results else {}
    given = results(command.results)
    if "outcomes" in before and "outcomes" in given:
        given["outcomes"] = {**dict(run.results.outcomes if run.results else ()), **dict(command.results.outcomes)}
    merged = before | given
    if run.results is not None and merged == before:
        return journal.stands(run.declared_number)
    if _contradicts(before, given) and not command.reason:
        raise CommandRejected(f"results of run {command.campaign}/{command.run} stand already: a correction needs a reason")
    content = content_of(command) | {"results": merged}
    if run.declared_number:
        content["corrects"] = run.declared_number
    return _written(journal, run.chain, command, content, campaign=command.campaign, run=command.run)


def _contradicts(before: Body, given: Body) -> bool:
    for name in before.keys() & given.keys():
        old, new = before[name], given[name]
        if isinstance(old, dict) and isinstance(new, dict):
            if any(new.get(key) != value for key, value in old.items()):
                return True
        elif old != new:
            return True
    return False


def _key(journal: Journal, command: IssueKey | RevokeKey) -> Posting:
    key = journal.standing.keys.get(command.key_id)
    if isinstance(command, IssueKey):
        if key is not None:
            if key.digest != command.digest:
                raise CommandRejected(f"key {command.key_id} exists")
            return journal.stands(key.issued_number)
        run = journal.run_of(command.campaign, command.run)
        if run.status is not RunStatus.OPEN:
            raise CommandRejected(f"run {command.campaign}/{command.run} is {run.status}: no key is issued")
        return _written(journal, campaign_chain(command.campaign), command, content_of(command), campaign=command.campaign, run=command.run)
    if key is None:
        raise CommandRejected(f"no key {command.key_id}")
    if key.revoked_number:
        return journal.stands(key.revoked_number)
    return _written(journal, campaign_chain(key.campaign), command, content_of(command), campaign=key.campaign, run=key.run)


def _event(journal: Journal, command: Event) -> Posting:
    content = content_of(command)
    if command.call_id:
        content["about_call"] = command.call_id
    if command.run:
        run = journal.run_of(command.campaign, command.run)
        return _written(journal, run.chain, command, content, campaign=command.campaign, run=command.run)
    campaign = journal.campaign_of(command.campaign)
    return _written(journal, campaign.chain, command, content, campaign=command.campaign)


def _run_receipt(journal: Journal, command: WriteReceipt) -> Posting:
    run = journal.run_of(command.campaign, command.run)
    if run.status is RunStatus.OPEN:
        raise CommandRejected(f"run {command.campaign}/{command.run} is open: it gets a receipt when it closes")
    if run.unsettled:
        raise CommandRejected(f"run {command.campaign}/{command.run} has {run.unsettled} calls that are not settled")
    if not run.receipt_due:
        return journal.stands(run.receipt_number)
    policy_hash = str(journal.standing.campaigns[command.campaign].opening["policy_hash"])
    content = run_receipt(
        run.tally or run_tally(journal.past.history(run.chain)),
        run.opening,
        policy_hash=policy_hash,
        head=_head(journal, run.chain),
        receipt=run.receipt + 1,
        replaces=_replaced(journal, run),
    )
    posting = _written(journal, run.chain, command, content, campaign=command.campaign, run=command.run)
    line: Body = {"receipt": run.receipt, "hash": posting.entries[0].hash.hex(), "totals": content["totals"]}
    entry = journal.write(campaign_chain(command.campaign), command, line, campaign=command.campaign, run=command.run, kind="run_receipt")
    run.tally = None  # little is written after a receipt: what is, is added to the chain's sums when they are needed again
    return _with_line(journal, posting, entry, line)


def _campaign_receipt(journal: Journal, command: WriteReceipt) -> Posting:
    campaign = journal.campaign_of(command.campaign)
    if not campaign.closing_number:
        raise CommandRejected(f"campaign {command.campaign} is open: it gets a receipt when it closes")
    still_open = [run.run for run in campaign.runs.values() if run.status is RunStatus.OPEN]
    if still_open:
        raise CommandRejected(f"campaign {command.campaign} has open runs: {', '.join(still_open[:5])}")
    if not campaign.receipt_due:
        return journal.stands(campaign.receipt_number)
    content = campaign_receipt(
        campaign_tally(journal.past.history(campaign.chain)),
        campaign.opening,
        unsettled={run.run: run.unsettled for run in campaign.runs.values() if run.receipt_due},
        head=_head(journal, campaign.chain),
        receipt=campaign.receipt + 1,
        replaces=_replaced(journal, campaign),
    )
    return _written(journal, campaign.chain, command, content, campaign=command.campaign)


def _head(journal: Journal, chain: str) -> Body:
    head = journal.standing.head(chain)
    return {"chain": chain, "sequence": head.sequence, "hash": head.hash.hex()}


def _replaced(journal: Journal, book: RunBook | CampaignBook) -> Body | None:
    if not book.receipt:
        return None
    return {"receipt": book.receipt, "hash": journal.past.entry(book.receipt_number).hash.hex()}
