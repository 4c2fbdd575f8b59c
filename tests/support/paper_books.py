"""Books without a file: posts commands, keeps the entries in a list, and reads the ledger scripts in which the rules are written down.

account run:c/r output_tokens
reserve c1 80 -> posted
expire  c1    -> posted
balance run:c/r output_tokens 0 80
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from gateway.accounting.books import Books
from gateway.accounting.chain import decode
from gateway.accounting.commands import (
    Adjust,
    BeginClosing,
    Command,
    Declare,
    Expire,
    OpenCampaign,
    OpenRun,
    Refuse,
    Reserve,
    Results,
    Settle,
    Void,
    WriteReceipt,
)
from gateway.accounting.entries import LedgerEntry, Posting
from gateway.accounting.limit import Account, Balance, Scope, Shortfall
from gateway.accounting.quantity import Amounts, Quantity
from gateway.accounting.standing import CallBook, CallStatus, Standing
from gateway.accounting.tally import Content
from gateway.accounting.usage import Outcome, Source, Usage
from gateway.errors import CommandRejected

STATUS = {"settle": CallStatus.SETTLED, "void": CallStatus.VOIDED, "expire": CallStatus.EXPIRED, "adjust": CallStatus.ADJUSTED}


class PaperBooks:
    """Books, their past and their balances in memory."""

    def __init__(self) -> None:
        self.written: list[LedgerEntry] = []
        self.standing = Standing()
        self.books = Books(self.standing, self)
        self.balances: dict[Account, Balance] = {}
        self._calls: dict[str, CallBook] = {}

    def post(self, command: Command) -> Posting:
        posting = self.books.post(command)
        if not posting.standing:
            self.written.extend(posting.entries)
        for line in posting.lines:
            self.balances[line.account] = self.balances.get(line.account, Balance()).plus(line.reserved, line.settled)
        self._follow(posting)
        return posting

    def _follow(self, posting: Posting) -> None:
        for entry in posting.entries if not posting.standing else ():
            if entry.kind == "reserve":
                self._calls[entry.call_id] = self.standing.calls[entry.call_id]
            elif entry.kind in STATUS:
                call, charge = self._calls[entry.call_id], cast("dict[str, int]", decode(entry.body).get("charge", {}))
                call.status, call.closing_number, call.charge = STATUS[entry.kind], entry.number, Amounts(**charge)

    # -- the past

    def entry(self, number: int) -> LedgerEntry:
        return self.written[number - 1]

    def history(self, chain: str) -> Iterable[Content]:
        return self.contents(chain)

    def call(self, call_id: str) -> CallBook | None:
        return self._calls.get(call_id)

    def contents(self, chain: str) -> Iterator[dict[str, object]]:
        return (decode(entry.body) for entry in self.written if entry.chain == chain)


def account(named: str, quantity: str) -> Account:
    """`run:c/r`, `campaign:c`, `gateway`"""
    scope, _, subject = named.partition(":")
    return Account(scope=Scope(scope), subject=subject, quantity=Quantity(quantity))


def open_campaign(campaign: str = "c", **more: object) -> OpenCampaign:
    return OpenCampaign(**{"campaign": campaign, "at_ms": 1, "policy_name": "p", "policy": "{}", "policy_hash": "ab" * 32} | more)  # type: ignore[arg-type]


def open_run(run: str = "r", campaign: str = "c", **more: object) -> OpenRun:
    return OpenRun(**{"campaign": campaign, "run": run, "at_ms": 2} | more)  # type: ignore[arg-type]


def reserve(call_id: str, output: int, prompt: int = 10, *, accounts: tuple[Account, ...] = (), run: str = "r", campaign: str = "c", at_ms: int = 3) -> Reserve:
    return Reserve(
        call_id=call_id,
        at_ms=at_ms,
        campaign=campaign,
        run=run,
        lane="foreground",
        key_id="key-1",
        model="m",
        upstream="u",
        dialect="openai.chat",
        stream=True,
        accounts=accounts,
        amounts=Amounts(requests=1, input_tokens=prompt, output_tokens=output, concurrent=1),
        prompt_source="bound",
        ceiling=output,
        ceiling_from="asked",
    )


def settle(call_id: str, output: int, prompt: int = 10, outcome: Outcome = Outcome.COMPLETED, at_ms: int = 4, tool_calls: int | None = None) -> Settle:
    return Settle(
        call_id=call_id,
        at_ms=at_ms,
        outcome=outcome,
        source=Source.REPORTED,
        usage=Usage(input_tokens=prompt, output_tokens=output, tool_calls=tool_calls),
        charge=Amounts(requests=1, input_tokens=prompt, output_tokens=output, tool_calls=tool_calls or 0),
    )


def adjust(call_id: str, output: int, evidence: str = "engine's log", at_ms: int = 5) -> Adjust:
    usage = Usage(input_tokens=10, output_tokens=output)
    return Adjust(
        call_id=call_id,
        at_ms=at_ms,
        usage=usage,
        charge=Amounts(requests=1, input_tokens=10, output_tokens=output),
        reason="late_usage",
        evidence=evidence,
    )


def refuse(call_id: str, limit: str = "run.requests", *, code: str = "run_budget_reached", final: bool = True, at_ms: int = 6, run: str = "r") -> Refuse:
    shortfall = Shortfall(name=limit, ceiling=7, settled=7, reserved=0, asked=1) if limit else None
    return Refuse(call_id=call_id, at_ms=at_ms, campaign="c", run=run, lane="foreground", model="m", code=code, final=final, limit=shortfall)


class Script:
    """Reads a ledger script line by line: each says what is posted and what must come of it."""

    def __init__(self) -> None:
        self.paper = PaperBooks()
        self.accounts: list[Account] = []
        self.paper.post(open_campaign())
        self.paper.post(open_run())

    def run(self, text: str) -> None:
        for number, line in enumerate(text.strip().splitlines(), 1):
            said, _, expected = line.partition("->")
            words = said.split()
            if not words:
                continue
            found = self._line(words)
            assert found == " ".join(expected.split()), f"line {number}: {line.strip()}: {found}"

    def _line(self, words: list[str]) -> str:
        match words:
            case ["account", named, quantity]:
                self.accounts.append(account(named, quantity))
            case ["balance", named, quantity, reserved, settled]:
                balance = self.paper.balances.get(account(named, quantity), Balance())
                assert balance == Balance(int(reserved), int(settled)), f"{' '.join(words)}: {balance}"
            case ["receipt"]:
                return self._receipt()
            case _:
                return self._posted(self._command(words))
        return ""

    def _command(self, words: list[str]) -> Command:
        match words:
            case ["reserve", call_id, output]:
                return reserve(call_id, int(output), accounts=tuple(self.accounts))
            case ["settle", call_id, output]:
                return settle(call_id, int(output))
            case ["settle", call_id, output, outcome]:
                return settle(call_id, int(output), outcome=Outcome(outcome))
            case ["void", call_id]:
                return Void(call_id=call_id, at_ms=4, reason="connect failed")
            case ["expire", call_id]:
                return Expire(call_id=call_id, at_ms=4, reason="process ended")
            case ["adjust", call_id, output, *evidence]:
                return adjust(call_id, int(output), " ".join(evidence))
            case ["refuse", call_id, limit]:
                return refuse(call_id, limit)
            case ["closing"]:
                return BeginClosing(campaign="c", run="r", at_ms=7)
            case ["declare", *pairs]:
                given = dict(pair.split("=") for pair in pairs)
                exit_code = int(given["exit"]) if "exit" in given else None
                results = Results(exit=exit_code, turn_end=given.get("turn_end", ""), judge=given.get("judge", ""))
                return Declare(campaign="c", run="r", at_ms=8, results=results, reason=given.get("reason", ""))
        raise AssertionError(words)

    def _posted(self, command: Command) -> str:
        try:
            posting = self.paper.post(command)
        except CommandRejected:
            return "rejected"
        if posting.standing:
            return "stands"
        return "posted" if posting.entries else "not written"

    def _receipt(self) -> str:
        try:
            posting = self.paper.post(WriteReceipt(campaign="c", run="r", at_ms=9))
        except CommandRejected:
            return "rejected"
        return f"{'stands' if posting.standing else 'posted'} {posting.content['receipt']}"
