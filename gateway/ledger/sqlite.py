"""The SQLite store: one writer on one file, WAL, a commit is on the disk when it returns (`synchronous = FULL`).

Entries, balances and call rows of a batch are written in one transaction. What stands is kept in memory from one batch to the next, which is right for as
long as the lock on the file is held, and read anew after a failure.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from gateway.accounting.books import Books
from gateway.accounting.call_row import CLOSING_COLUMNS, OPENING_COLUMNS, STATUS, closing_row, opening_row
from gateway.accounting.chain import decode
from gateway.accounting.commands import Command, Reserve
from gateway.accounting.entries import LedgerEntry, Posting
from gateway.accounting.limit import Account, Balance
from gateway.accounting.replay import apply
from gateway.accounting.standing import CallStatus, Head, Standing, account_of
from gateway.errors import CommandRejected, LedgerUnavailable
from gateway.ledger import backup, schema
from gateway.ledger.many import Many, Row, marks
from gateway.ledger.store import RefusalCounts
from gateway.ledger.written import Written, calls, entries

INSERT_ENTRIES = Many("INSERT INTO journal VALUES ", "(?, ?, ?, ?, ?, ?, CAST(? AS TEXT), ?, ?)")
INSERT_CALLS = Many(f"INSERT INTO call_records ({', '.join(OPENING_COLUMNS)}) VALUES ", marks(len(OPENING_COLUMNS)))
KEPT = ("outcome", "counted_by", "flags")
"""Of these an adjustment says nothing: what stood there stays."""
_NEW = [(column, f"new.column{place}") for place, column in enumerate(CLOSING_COLUMNS, 1)]
_SET = ", ".join(f"{column} = coalesce({new}, {column})" if column in KEPT else f"{column} = {new}" for column, new in _NEW)
CLOSE_CALLS = Many(
    f"UPDATE call_records SET {_SET} FROM (VALUES ", marks(len(CLOSING_COLUMNS) + 1), f") AS new WHERE call_id = new.column{len(CLOSING_COLUMNS) + 1}"
)
ADD_TO_BALANCES = Many(
    "INSERT INTO accounts VALUES ",
    marks(3),
    " ON CONFLICT (account) DO UPDATE SET reserved = reserved + excluded.reserved, settled = settled + excluded.settled",
)


class SqliteStore:
    """Not thread-safe: whoever holds it uses it from one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = schema.open_for_writing(path)
        self._written = Written(self._connection, self._flush)
        self._books = Books(Standing(), self._written)
        self._chain_ids: dict[str, int] = {}
        self._last_call = ""
        """The last call id in the file, in alphabetical order."""
        self._entry_rows: list[Row] = []
        self._opened: list[Row] = []
        self._closed: dict[str, Row] = {}
        self._changes: dict[str, list[int]] = {}
        """By account: what is reserved, what is settled."""

    def migrate(self) -> None:
        try:
            schema.migrate(self._connection)
        except sqlite3.Error as error:
            self._roll_back()
            raise LedgerUnavailable(f"{self.path}: {error}") from error

    def is_backup(self) -> bool:
        try:
            return backup.is_backup(self._connection)
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"{self.path}: {error}") from error

    def accept(self) -> None:
        try:
            backup.unmark(self._connection)
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"{self.path}: {error}") from error

    # -- reading

    def load(self) -> Standing:
        try:
            standing = self._load()
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"{self.path}: {error}") from error
        self._books = Books(standing, self._written)
        return standing

    def _load(self) -> Standing:
        ask = self._connection.execute
        standing = Standing()
        standing.number, standing.at_ms = ask("SELECT coalesce(max(number), 0), coalesce(max(at_ms), 0) FROM journal").fetchone()
        self._chain_ids = dict(ask("SELECT name, id FROM chains"))
        (self._last_call,) = ask("SELECT coalesce(max(call_id), '') FROM call_records").fetchone()
        heads = "SELECT name, max(sequence), hash FROM journal JOIN chains ON chains.id = chain_id GROUP BY chain_id"
        standing.heads = {name: Head(sequence, digest) for name, sequence, digest in ask(heads)}
        for number, body, digest in ask("SELECT number, CAST(body AS BLOB), hash FROM journal WHERE call_id = '' ORDER BY number"):
            apply(standing, number, decode(body), digest)
        counts = """SELECT campaign, run, sum(status <> 'voided'), sum(status = 'reserved'), coalesce(max(closing_number), 0)
            FROM call_records GROUP BY campaign, run"""
        for campaign, name, made, unsettled, last_closing in ask(counts):
            if (run := standing.run(campaign, name)) is not None:
                run.calls, run.unsettled = made, unsettled
                run.receipt_due = run.receipt_due or last_closing > run.receipt_number
        first = "SELECT campaign, run, lane, min(admitted_ms) FROM call_records WHERE status <> 'voided' GROUP BY campaign, run, lane"
        for campaign, name, lane, at_ms in ask(first):
            if (run := standing.run(campaign, name)) is not None:
                run.first_call_ms[lane] = at_ms
        standing.calls = {call.call_id: call for call in calls(self._connection, "WHERE status = 'reserved'") if call.status is CallStatus.RESERVED}
        return standing

    def entries(self, *, chain: str = "", after: int = 0) -> Iterator[LedgerEntry]:
        where, values = ("WHERE number > ?", (after,)) if not chain else ("WHERE number > ? AND name = ?", (after, chain))
        return entries(self._connection, where, values)

    def balances(self) -> dict[Account, Balance]:
        rows = self._connection.execute("SELECT account, reserved, settled FROM accounts")
        return {account_of(key): Balance(reserved, settled) for key, reserved, settled in rows}

    def refusal_counts(self) -> RefusalCounts:
        rows = self._connection.execute("SELECT campaign, run, code, coalesce(limit_name, ''), count(*) FROM refusals WHERE call_id <> '' GROUP BY 1, 2, 3, 4")
        return {(campaign, run, code, limit): count for campaign, run, code, limit, count in rows}

    # -- writing

    def post(self, commands: Sequence[Command]) -> list[Posting | CommandRejected]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._look_up(commands)
            answers = [self._post(command) for command in commands]
            self._flush()
            self._connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            self._roll_back()
            raise LedgerUnavailable(f"{self.path}: {error}") from error
        except BaseException:
            self._roll_back()
            raise
        return answers

    def probe(self) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("CREATE TABLE probe (filler)")
            self._connection.execute("INSERT INTO probe VALUES (zeroblob(65536))")
            self._connection.execute("DROP TABLE probe")
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise LedgerUnavailable(f"{self.path}: {error}") from error

    def close(self) -> None:
        self._connection.close()

    def _look_up(self, commands: Sequence[Command]) -> None:
        """One question for the whole batch: which of the calls to be opened stand already? Ids sort by time: what comes after the last one cannot."""
        new = [command.call_id for command in commands if isinstance(command, Reserve)]
        self._written.absent = set(new)
        if asked := [call_id for call_id in new if call_id <= self._last_call]:
            known = self._connection.execute("SELECT call_id FROM call_records WHERE call_id IN (SELECT value FROM json_each(?))", (json.dumps(asked),))
            self._written.absent.difference_update(call_id for (call_id,) in known)

    def _post(self, command: Command) -> Posting | CommandRejected:
        try:
            posting = self._books.post(command)
        except CommandRejected as rejected:
            return rejected
        if posting.standing:
            return posting
        for entry in posting.entries:
            chain_id = self._chain_ids.get(entry.chain) or self._new_chain(entry.chain)
            self._entry_rows.append(
                (entry.number, chain_id, entry.sequence, entry.kind, entry.at_ms, entry.call_id, entry.body, entry.previous_hash, entry.hash)
            )
            if entry.kind == "reserve":
                run = self._books.standing.campaigns[entry.campaign].runs[entry.run]
                self._opened.append(opening_row(posting.content, str(run.opening.get("label", ""))))
                self._written.absent.discard(entry.call_id)
                self._last_call = max(self._last_call, entry.call_id)
            elif entry.kind in STATUS:
                if entry.call_id in self._closed:  # one statement may change a row but once
                    self._flush()
                self._closed[entry.call_id] = (*closing_row(posting.content), entry.call_id)
        changes = self._changes
        for key, reserved, settled in cast("Sequence[tuple[str, int, int]]", posting.content.get("postings", ())):
            change = changes.get(key)
            if change is None:
                changes[key] = [reserved, settled]
            else:
                change[0] += reserved
                change[1] += settled
        return posting

    def _new_chain(self, name: str) -> int:
        cursor = self._connection.execute("INSERT INTO chains (name) VALUES (?)", (name,))
        self._chain_ids[name] = chain_id = cursor.lastrowid or 0
        return chain_id

    def _flush(self) -> None:
        """Writes what the batch has gathered, inside its transaction."""
        INSERT_ENTRIES.run(self._connection, self._entry_rows)
        INSERT_CALLS.run(self._connection, self._opened)
        CLOSE_CALLS.run(self._connection, list(self._closed.values()))
        ADD_TO_BALANCES.run(self._connection, [(key, *change) for key, change in self._changes.items() if any(change)])
        self._forget()

    def _roll_back(self) -> None:
        """After this only `load` makes the store usable again: what stands in memory has run ahead of the file."""
        self._forget()
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # SQLite has rolled back by itself

    def _forget(self) -> None:
        self._entry_rows.clear()
        self._opened.clear()
        self._closed.clear()
        self._changes.clear()
