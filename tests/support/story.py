"""A campaign's story as commands: two labels, a correction, calls that were voided, lost and settled late, results, receipts; and a file that holds it."""

from __future__ import annotations

from pathlib import Path

from gateway.accounting.commands import BeginClosing, CloseCampaign, Command, Declare, Expire, Halt, IssueKey, Results, Settle, Void, WriteReceipt
from gateway.accounting.quantity import Amounts
from gateway.accounting.usage import Outcome, Source, Usage
from gateway.ledger.sqlite import SqliteStore
from tests.support.paper_books import account, adjust, open_campaign, open_run, refuse, reserve, settle

ACCOUNTS = tuple(account(named, quantity) for named in ("run:c/r", "campaign:c") for quantity in ("requests", "output_tokens", "tool_calls"))

STORY: list[Command] = [
    open_campaign(planned_runs=2),
    open_run(label="engineering", accounts=(account("campaign:c", "runs"),)),
    open_run("s", label="production"),
    IssueKey(campaign="c", run="r", lane="foreground", key_id="key-1", digest="00", at_ms=3),
    reserve("a", 80, 40, accounts=ACCOUNTS),
    reserve("b", 80, 40, accounts=ACCOUNTS),
    settle("a", 30, 20),
    Settle(
        call_id="b",
        at_ms=5,
        outcome=Outcome.ENGINE_DIED,
        source=Source.COUNTED,
        usage=Usage(input_tokens=25, tool_calls=2),
        charge=Amounts(requests=1, input_tokens=25, tool_calls=2),
    ),
    reserve("d", 10, accounts=ACCOUNTS),
    Void(call_id="d", at_ms=5, reason="connect failed"),
    refuse("x"),
    reserve("e", 10, accounts=ACCOUNTS),
    Expire(call_id="e", at_ms=6, reason="process ended"),
    Declare(campaign="c", run="r", at_ms=7, results=Results(turn_end="completed", exit=0)),
    BeginClosing(campaign="c", run="r", at_ms=8),
    WriteReceipt(campaign="c", run="r", at_ms=9),
    settle("e", 3),
    adjust("a", 33),
    WriteReceipt(campaign="c", run="r", at_ms=10),
    reserve("f", 10, run="s"),
    settle("f", 6),
    BeginClosing(campaign="c", run="s", at_ms=11),
    WriteReceipt(campaign="c", run="s", at_ms=12),
    Halt(campaign="c", at_ms=12),
    CloseCampaign(campaign="c", at_ms=13),
    WriteReceipt(campaign="c", run="", at_ms=14),
]


def write(path: Path, commands: list[Command]) -> None:
    store = SqliteStore(path)
    store.migrate()
    store.load()
    for answer in store.post(commands):
        assert not isinstance(answer, Exception), answer
    store.close()
