"""What was written before, asked of the SQLite file: single entries, a chain's history, calls that are closed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import cast

from gateway.accounting.chain import decode
from gateway.accounting.entries import LedgerEntry
from gateway.accounting.limit import Account
from gateway.accounting.quantity import Amounts
from gateway.accounting.standing import CallBook, CallStatus, account_of
from gateway.accounting.tally import Content

ENTRY = """SELECT number, name, sequence, kind, at_ms, call_id, CAST(body AS BLOB), previous_hash, hash FROM journal JOIN chains ON chains.id = chain_id"""


class Written:
    """The books' past. `flush` is called before reading what the batch at hand may have written."""

    def __init__(self, connection: sqlite3.Connection, flush: Callable[[], None] = lambda: None) -> None:
        self._connection = connection
        self._flush = flush
        self.absent: set[str] = set()
        """Call ids that are known not to be in the file."""

    def entry(self, number: int) -> LedgerEntry:
        self._flush()
        return next(entries(self._connection, "WHERE number = ?", (number,)))

    def history(self, chain: str) -> Iterator[Content]:
        self._flush()
        rows = self._connection.execute(
            "SELECT CAST(body AS BLOB) FROM journal WHERE chain_id = (SELECT id FROM chains WHERE name = ?) ORDER BY sequence", (chain,)
        )
        return (decode(body) for (body,) in rows)

    def call(self, call_id: str) -> CallBook | None:
        if call_id in self.absent:
            return None
        self._flush()
        return next(calls(self._connection, "WHERE call_records.call_id = ?", (call_id,)), None)


def entries(connection: sqlite3.Connection, where: str = "", values: tuple[object, ...] = ()) -> Iterator[LedgerEntry]:
    """Whatever stands in the file, whether it fits or not."""
    for number, chain, sequence, kind, at_ms, call_id, body, previous_hash, hashed in connection.execute(f"{ENTRY} {where} ORDER BY number", values):
        campaign, run = _names(chain)
        yield LedgerEntry(
            number=number,
            chain=chain,
            sequence=sequence,
            kind=kind,
            at_ms=at_ms,
            campaign=campaign,
            run=run,
            call_id=call_id,
            body=body,
            previous_hash=previous_hash,
            hash=hashed,
        )


def _names(chain: str) -> tuple[str, str]:
    if chain.startswith("run:"):
        campaign, _, run = chain[4:].partition("/")
        return campaign, run
    return chain.removeprefix("campaign:") if chain.startswith("campaign:") else "", ""


def calls(connection: sqlite3.Connection, where: str, values: tuple[object, ...] = ()) -> Iterator[CallBook]:
    """Calls with their accounts, as the entry of their reservation names them."""
    rows = connection.execute(
        f"""SELECT CAST(body AS BLOB), status, charged_requests, charged_input_tokens, charged_output_tokens, charged_tool_calls, closing_number
        FROM call_records JOIN journal ON number = reserve_number {where} ORDER BY number""",
        values,
    ).fetchall()
    accounts: dict[str, Account] = {}  # calls share theirs
    for body, status, requests, input_tokens, output_tokens, tool_calls, closing_number in rows:
        content = decode(body)
        keys = [posting[0] for posting in cast("list[list[str]]", content.get("postings", []))]
        for key in keys:
            if key not in accounts:
                accounts[key] = account_of(key)
        yield CallBook(
            call_id=cast(str, content["call"]),
            campaign=cast(str, content["campaign"]),
            run=cast(str, content["run"]),
            accounts=tuple(accounts[key] for key in keys),
            reserved=Amounts(**cast("dict[str, int]", content["reserved"])),
            charge=None if status == "reserved" else Amounts(requests=requests, input_tokens=input_tokens, output_tokens=output_tokens, tool_calls=tool_calls),
            status=CallStatus(status),
            reserve_number=cast(int, content["number"]),
            closing_number=closing_number or 0,
        )
