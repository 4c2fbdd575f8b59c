"""The books: the one state machine of what may be written after what.

A closing entry brings the call's part of each account from where its history left it to where it ends; settle, late settle, void, expire and adjust are
that one line. A command posted twice answers with the entry that stands. Nothing changes before all that could be refused has been looked at, so a
command that is rejected leaves no trace. The books know no ceiling: whoever reserves has decided first.
"""

from __future__ import annotations

from gateway.accounting.commands import Adjust, CallCommand, Command, Expire, OpenRun, RefusalSummary, Refuse, Reserve, Settle, Void
from gateway.accounting.contents import KINDS, Body, charge_of, content_of
from gateway.accounting.entries import Posting, PostingLine, tuple_as
from gateway.accounting.journal import Journal
from gateway.accounting.quantity import NOTHING, Amounts, Quantity, measures
from gateway.accounting.records import post_record
from gateway.accounting.standing import CallBook, CallStatus, Past, RunStatus, Standing
from gateway.errors import CommandRejected

WRITTEN = "written"
STANDS = "stands"

FOLLOWS: dict[CallStatus, dict[type[CallCommand], str]] = {
    CallStatus.RESERVED: {Reserve: STANDS, Settle: WRITTEN, Void: WRITTEN, Expire: WRITTEN},
    CallStatus.EXPIRED: {Reserve: STANDS, Settle: WRITTEN, Expire: STANDS, Adjust: WRITTEN},
    CallStatus.SETTLED: {Reserve: STANDS, Settle: STANDS, Adjust: WRITTEN},
    CallStatus.ADJUSTED: {Reserve: STANDS, Settle: STANDS, Adjust: WRITTEN},
    CallStatus.VOIDED: {Reserve: STANDS, Void: STANDS},
}
"""What may be posted about a call that stands so. What is not here is rejected."""

BECOMES: dict[type[CallCommand], CallStatus] = {
    Reserve: CallStatus.RESERVED,
    Settle: CallStatus.SETTLED,
    Void: CallStatus.VOIDED,
    Expire: CallStatus.EXPIRED,
    Adjust: CallStatus.ADJUSTED,
}

QUANTITIES = tuple(Quantity)
NONE_OF_ANY = dict.fromkeys(QUANTITIES, 0)


class Books:
    """Posts one command after the other over one standing."""

    def __init__(self, standing: Standing, past: Past) -> None:
        self.standing = standing
        self.past = past
        self._journal = Journal(standing, past)

    def post(self, command: Command) -> Posting:
        """Raises CommandRejected."""
        try:
            match command:
                case Reserve():
                    return self._reserve(command)
                case Settle() | Void() | Expire() | Adjust():
                    return self._close(command)
                case Refuse() | RefusalSummary():
                    return self._refuse(command)
                case _:
                    return post_record(self._journal, command)
        except ValueError as error:
            raise CommandRejected(f"{KINDS[type(command)]}: {error}") from error

    # -- calls

    def _reserve(self, command: Reserve) -> Posting:
        standing = self.standing
        call = standing.calls.get(command.call_id) or self.past.call(command.call_id)
        if call is not None:
            return self._journal.stands(call.reserve_number)
        run = self._journal.run_of(command.campaign, command.run)
        if run.status is not RunStatus.OPEN:
            raise CommandRejected(f"run {run.campaign}/{run.run} is {run.status}: it admits no call")
        if (campaign := standing.campaigns[command.campaign]).halted or campaign.closing_number:
            raise CommandRejected(f"campaign {command.campaign} is {'closed' if campaign.closing_number else 'halted'}: it admits no call")
        content = content_of(command)
        lines = opening_lines(command)
        entry = self._journal.write(run.chain, command, content, campaign=command.campaign, run=command.run, call_id=command.call_id, lines=lines)
        standing.calls[command.call_id] = CallBook(
            call_id=command.call_id,
            campaign=command.campaign,
            run=command.run,
            accounts=command.accounts,
            reserved=command.amounts,
            reserve_number=entry.number,
        )
        run.calls += 1
        run.unsettled += 1
        return Posting(entries=(entry,), lines=lines, content=content)

    def _close(self, command: Settle | Void | Expire | Adjust) -> Posting:
        call = self.standing.calls.get(command.call_id) or self.past.call(command.call_id)
        if call is None:
            raise CommandRejected(f"no call {command.call_id}")
        ruling = FOLLOWS[call.status].get(type(command))
        if ruling is None:
            raise CommandRejected(f"{KINDS[type(command)]} may not follow: call {command.call_id} is {call.status}")
        content = content_of(command)
        if ruling is STANDS or (isinstance(command, Adjust) and self._is_repeated(call, content)):
            return self._journal.stands(call.closing_number)
        charge = _charge(command, call)
        if isinstance(command, Expire):
            content["charge"] = charge_of(charge)
        if call.closing_number:
            content["corrects"] = call.closing_number
        lines = closing_lines(call, charge)
        run = self._journal.run_of(call.campaign, call.run)
        entry = self._journal.write(run.chain, command, content, campaign=call.campaign, run=call.run, call_id=call.call_id, lines=lines)
        if call.status is CallStatus.RESERVED:
            del self.standing.calls[call.call_id]
            run.unsettled -= 1
            run.calls -= isinstance(command, Void)
        run.receipt_due = True
        return Posting(entries=(entry,), lines=lines, content=content)

    def _is_repeated(self, call: CallBook, content: Body) -> bool:
        if call.status is not CallStatus.ADJUSTED:
            return False
        stands = self._journal.stands(call.closing_number).content
        return all(stands[name] == content[name] for name in ("usage", "charge", "reason", "evidence"))

    def _refuse(self, command: Refuse | RefusalSummary) -> Posting:
        run = self._journal.run_of(command.campaign, command.run)
        content = content_of(command)
        if run.status is not RunStatus.OPEN:  # from closing on, refusals are metrics and log lines
            return Posting(entries=(), lines=(), content={})
        call_id = command.call_id if isinstance(command, Refuse) else ""
        entry = self._journal.write(run.chain, command, content, campaign=command.campaign, run=command.run, call_id=call_id)
        return Posting(entries=(entry,), lines=(), content=content)


def opening_lines(command: Reserve | OpenRun) -> tuple[PostingLine, ...]:
    """What the command will post, known before it is written."""
    if isinstance(command, OpenRun):
        amount = measures(Amounts(runs=1))
        return tuple(PostingLine(account, 0, amount[account.quantity]) for account in command.accounts)
    return command.lines


def closing_lines(call: CallBook, charge: Amounts) -> tuple[PostingLine, ...]:
    """From where the call's history left each account to where it ends."""
    held = measures(call.reserved) if call.charge is None else NONE_OF_ANY
    before = measures(call.charge) if call.charge is not None else NONE_OF_ANY
    after = measures(charge)
    change = {quantity: (-held[quantity], after[quantity] - before[quantity]) for quantity in QUANTITIES}
    lines = []
    for account in call.accounts:
        reserved, settled = change[account.quantity]
        if reserved or settled:
            lines.append(tuple_as(PostingLine, (account, reserved, settled)))
    return tuple(lines)


def _charge(command: Settle | Void | Expire | Adjust, call: CallBook) -> Amounts:
    match command:
        case Void():
            return NOTHING
        case Expire():
            held = call.reserved
            return Amounts(requests=held.requests, input_tokens=held.input_tokens, output_tokens=held.output_tokens)
        case Settle() | Adjust():
            charge = command.charge
            if charge.concurrent or charge.runs or min(charge.requests, charge.input_tokens, charge.output_tokens, charge.tool_calls) < 0:
                raise CommandRejected(f"call {call.call_id}: no charge is negative, or goes on being concurrent")
            return charge
