"""The reading side: calls, usage, refusals, receipts of a ledger file, read-only, also while a gateway writes it. Never on the way of a call.

Usage and charge stand in columns of their own and are never added to each other; what is unknown is counted as unknown. One total over several labels is
refused unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from gateway.accounting.call_row import COLUMNS, NOT_CLOSED, STATUS, closed, closing_row, opening_row
from gateway.accounting.chain import decode
from gateway.accounting.entries import LedgerEntry
from gateway.accounting.receipt import given_out
from gateway.accounting.tally import OVERSHOOT_COLUMNS, USAGE_COLUMNS, Content, added
from gateway.errors import MixedLabels, NotFound, NotYet
from gateway.ledger.by_day import dated, zone_of
from gateway.ledger.connect import ledger_path
from gateway.ledger.explaining import explain
from gateway.ledger.schema import open_for_reading
from gateway.ledger.verify import Verification, verify
from gateway.ledger.written import entries

if TYPE_CHECKING:
    import sqlite_utils

Row = dict[str, object]

GROUPS = {
    "run": ("campaign", "run"),
    "lane": ("campaign", "lane"),
    "campaign": ("campaign",),
    "model": ("model",),
    "label": ("label",),
    "day": ("day",),
}
CHARGES = ("requests", "input_tokens", "output_tokens", "tool_calls")
_SUMS = ", ".join(
    [f"coalesce(sum({column}), 0) AS {column}, sum({column} IS NULL) AS {column}_unknown" for column in USAGE_COLUMNS]
    + [f"coalesce(sum(charged_{column}), 0) AS charged_{column}" for column in CHARGES]
    + [f"coalesce(sum(max(charged_{column} - reserved_{column}, 0)), 0) AS above_{column}" for column in OVERSHOOT_COLUMNS]
    + [f"coalesce(sum({' OR '.join(f'charged_{column} > reserved_{column}' for column in OVERSHOOT_COLUMNS)}), 0) AS above_calls"]
)

_ENDED = COLUMNS.index("ended_ms")
"""A correction says nothing of the end."""
_OF_CALL = """WHERE chain_id = (SELECT chain_id FROM call_records JOIN journal ON number = reserve_number WHERE call_records.call_id = ?1)
    AND number >= (SELECT reserve_number FROM call_records WHERE call_id = ?1)
    AND (call_id = ?1 OR (call_id = '' AND kind = 'event' AND json_extract(body, '$.about_call') = ?1))"""
"""Of its run's chain, from its reservation on."""


class LedgerReader:
    """Holds one read-only connection; used by one thread at a time."""

    def __init__(self, path: str | Path) -> None:
        """Raises LedgerUnavailable where there is no ledger."""
        self._connection = open_for_reading(ledger_path(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    @cached_property
    def _database(self) -> sqlite_utils.Database:
        import sqlite_utils  # here, not above: with what it brings along it weighs 20 MB, and a gateway of which nobody asks a report needs none of it

        return sqlite_utils.Database(self._connection)

    def query(self, sql: str, **values: object) -> list[Row]:
        """Rows of any reading statement, as objects."""
        return list(self._database.query(sql, values))

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """Everything read within is of one moment, also while a gateway writes."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.rollback()

    def chain(self, name: str, *, as_of: int = 0, last: int = 0) -> Iterator[LedgerEntry]:
        """Its entries in order, each with its hash; with `last`, only that many from the end."""
        of = "chain_id = (SELECT id FROM chains WHERE name = ?)"
        end = f"sequence > coalesce((SELECT max(sequence) FROM journal WHERE {of}), 0) - ?" if last else "? = 0"
        values = (name, as_of, as_of, name, last) if last else (name, as_of, as_of, 0)
        return entries(self._connection, f"WHERE {of} AND (? = 0 OR number <= ?) AND {end}", values)

    def reservations(self, call_id: str = "") -> Iterator[Content]:
        """Of one call or all, in order."""
        return (decode(entry.body) for entry in entries(self._connection, "WHERE kind = 'reserve' AND (? = '' OR call_id = ?)", (call_id, call_id)))

    def balances(self, accounts: Collection[str]) -> dict[str, tuple[int, int]]:
        """Reserved and settled of these accounts, by key; nothing where nothing was ever posted."""
        marks = ", ".join("?" * len(accounts))
        rows = self._connection.execute(f"SELECT account, reserved, settled FROM accounts WHERE account IN ({marks})", tuple(accounts))
        return {account: (reserved, settled) for account, reserved, settled in rows}

    def last_refusals(self, most: int) -> list[Row]:
        """The entries of the last refusals in the whole ledger, the latest first."""
        kinds = "kind IN ('refuse', 'refusal_summary')"
        bodies = self._connection.execute(f"SELECT CAST(body AS BLOB) FROM journal WHERE {kinds} ORDER BY number DESC LIMIT ?", (most,))
        return [dict(decode(body)) for (body,) in bodies]

    def reconciliations(self) -> Iterator[Content]:
        """The events that put one on record, in order."""
        bodies = self._connection.execute(
            "SELECT CAST(body AS BLOB) FROM journal WHERE call_id = '' AND kind = 'event' AND json_extract(body, '$.name') = 'reconciled' ORDER BY number"
        )
        return (decode(body) for (body,) in bodies)

    def last_number(self, campaign: str) -> int:
        """Of the last entry of that campaign or of one of its runs; 0 where there is no such campaign."""
        named = "chain_id IN (SELECT id FROM chains WHERE name = :chain OR substr(name, 1, length(:runs)) = :runs)"
        found = self.query(f"SELECT coalesce(max(number), 0) AS number FROM journal WHERE {named}", chain=f"campaign:{campaign}", runs=f"run:{campaign}/")
        return cast(int, found[0]["number"])

    def check_as_of(self, number: int) -> None:
        """Raises NotYet where the ledger has not come so far: what was told as of that entry would be another thing later."""
        last = self._connection.execute("SELECT coalesce(max(number), 0) FROM journal").fetchone()[0]
        if number > last:
            raise NotYet(f"there is no entry {number} yet: the last is {last}")

    def check_named(self, campaign: str, run: str = "") -> None:
        """Raises NotFound where what is named was never opened: a name that is misspelt is no name of nothing."""
        if campaign and not self.query("SELECT 1 FROM campaigns WHERE campaign = :campaign", campaign=campaign):
            raise NotFound(f"there is no campaign {campaign}")
        named = "SELECT 1 FROM runs WHERE run = :run AND (:campaign = '' OR campaign = :campaign) LIMIT 1"
        if run and not self.query(named, campaign=campaign, run=run):
            raise NotFound(f"there is no run {campaign + '/' if campaign else ''}{run}")

    # -- rows

    def calls(self, *, campaign: str = "", run: str = "", as_of: int = 0, last: int = 0) -> list[Row]:
        """In the order of admission; with `last`, only that many from the end."""
        table = self._as_of(as_of) if as_of else "calls"
        rows = self.query(
            f"SELECT * FROM {table} WHERE (:campaign = '' OR campaign = :campaign) AND (:run = '' OR run = :run) ORDER BY reserve_number DESC LIMIT :last",
            campaign=campaign,
            run=run,
            last=last or -1,
        )
        return rows[::-1]

    def refusals(self, *, campaign: str = "", run: str = "") -> list[Row]:
        return self.query(
            "SELECT * FROM refusals WHERE (:campaign = '' OR campaign = :campaign) AND (:run = '' OR run = :run) ORDER BY number", campaign=campaign, run=run
        )

    def explain(self, call_id: str) -> Row:
        """Why it was refused, clamped, made to wait, cut. Raises NotFound; of a flood of refusals only the first stand singly."""
        found = list(entries(self._connection, _OF_CALL, (call_id,)))
        if not found:
            found = list(entries(self._connection, "WHERE kind IN ('refuse', 'refusal_summary') AND call_id = ?", (call_id,)))
        if not found:
            raise NotFound(f"no entry of call {call_id}")
        return explain(call_id, found)

    def campaigns(self) -> list[Row]:
        return self.query("SELECT * FROM campaigns ORDER BY number")

    def runs(self, campaign: str = "") -> list[Row]:
        return self.query("SELECT * FROM runs WHERE (:campaign = '' OR campaign = :campaign) ORDER BY number", campaign=campaign)

    def receipts(self, *, campaign: str = "", run: str | None = None) -> list[Row]:
        """As they were given out; `run` empty: a campaign's own only, None: all."""
        return [
            given_out(decode(entry.body), entry.hash)
            for entry in entries(self._connection, "WHERE call_id = '' AND kind = 'receipt'")
            if (not campaign or entry.campaign == campaign) and (run is None or entry.run == run)
        ]

    def receipt(self, campaign: str, run: str = "") -> Row:
        """The one that stands. Raises NotFound."""
        found = self.receipts(campaign=campaign, run=run)
        if not found:
            raise NotFound(f"no receipt of {campaign}{'/' + run if run else ''}: one is written when that is closed")
        return found[-1]

    def heads(self) -> list[Row]:
        """The end of every chain: what to keep, to hold the ledger against later."""
        return self.query(
            """SELECT name AS chain, max(sequence) AS sequence, lower(hex(hash)) AS hash
            FROM journal JOIN chains ON chains.id = chain_id GROUP BY chain_id ORDER BY name"""
        )

    def verify(self, against: object = None) -> Verification:
        """Adds everything again. `against`: receipts or heads that were kept, as JSON material."""
        return verify(self._connection, against)

    # -- usage

    def usage(self, by: str = "run", *, campaign: str = "", run: str = "", across_labels: bool = False, as_of: int = 0, zone: str = "") -> Row:
        """`{by, groups, total}`, by day also `zone`: the one asked for, else the one in which the policies count their days.

        Raises MixedLabels where one group would add over several labels; where only the total would, there is none (None). By day also ZoneUnclear.
        Raises NotFound where what is named was never opened: that is no usage of nothing.
        """
        self.check_as_of(as_of)
        self.check_named(campaign, run)
        with self.at_one_moment() if by == "day" else nullcontext():
            table = self._as_of(as_of) if as_of else "call_records"
            sent = "status <> 'voided' AND (:campaign = '' OR campaign = :campaign) AND (:run = '' OR run = :run)"
            asked = {"campaign": campaign, "run": run}
            if by == "day":
                asked["zone"] = zone = zone or self._zone(f"SELECT DISTINCT campaign FROM {table} WHERE {sent}", asked)
                table = dated(self._connection, table, zone) if zone else f"(SELECT *, '' AS day FROM {table})"
            kinds = ", ".join(dict.fromkeys((*GROUPS[by], "label")))
            rows = self.query(
                f"""SELECT {kinds}, status = 'reserved' AS open, coalesce(source, '') AS source, count(*) AS calls, {_SUMS} FROM {table}
                WHERE {sent} GROUP BY {kinds}, open, source ORDER BY {kinds}""",
                **asked,
            )
        return _grouped(by, rows, across_labels) | ({"zone": zone} if zone else {})

    def _zone(self, campaigns: str, asked: dict[str, str]) -> str:
        """In which the policies of these campaigns count their days; empty where there are no such calls."""
        found = self._connection.execute(f"SELECT campaign, policy FROM campaigns WHERE campaign IN ({campaigns})", asked).fetchall()
        return zone_of(found) if found else ""

    def _as_of(self, number: int) -> str:
        """A table of the calls as they stood with that entry, made from the journal."""
        self._connection.execute("DROP TABLE IF EXISTS temp.calls_as_of")
        self._connection.execute(f"CREATE TEMP TABLE calls_as_of ({', '.join(COLUMNS)})")
        self._connection.executemany(f"INSERT INTO temp.calls_as_of VALUES ({', '.join('?' * len(COLUMNS))})", self._rows_at(number))
        return "temp.calls_as_of"

    def _rows_at(self, number: int) -> Iterator[tuple[object, ...]]:
        calls: dict[str, tuple[object, ...]] = {}
        labels = {(row["campaign"], row["run"]): cast("str | None", row["label"]) or "" for row in self.runs()}
        for entry in entries(self._connection, "WHERE call_id <> '' AND number <= ?", (number,)):
            if entry.kind == "reserve":
                row = opening_row(decode(entry.body), labels[entry.campaign, entry.run])
                calls[entry.call_id] = row + NOT_CLOSED
            elif entry.kind in STATUS:
                before = calls[entry.call_id]
                row = closed(before, closing_row(decode(entry.body)))
                calls[entry.call_id] = row if entry.kind != "adjust" else (*row[:_ENDED], before[_ENDED], *row[_ENDED + 1 :])
        return iter(calls.values())


def _grouped(by: str, rows: list[Row], across_labels: bool) -> Row:
    """Raises MixedLabels."""
    names = GROUPS[by]
    groups: dict[tuple[object, ...], Row] = {}
    labels: dict[tuple[object, ...], set[str]] = {}
    total: Row = {}
    for row in rows:
        key = tuple(row[name] for name in names)
        labels.setdefault(key, set()).add(cast(str, row["label"]))
        groups[key] = added(groups.get(key, {}), _sums(row))
        total = added(total, _sums(row))
    all_labels = set().union(*labels.values())
    if not across_labels and (mixed := next((key for key, found in labels.items() if len(found) > 1), None)) is not None:
        named = f"{by} {'/'.join(map(str, mixed))} covers the labels {_list(labels[mixed])}"
        raise MixedLabels(f"{named}: one total over several labels is given only if asked for")
    shown = [dict(zip(names, key, strict=True)) | {"labels": sorted(labels[key])} | sums for key, sums in groups.items()]
    return {"by": by, "groups": shown, "total": total if total and (across_labels or len(all_labels) == 1) else None, "labels": sorted(all_labels)}


def _sums(row: Mapping[str, object]) -> Row:
    """One row of the grouped query in the report's shape. An open call has neither usage nor charge yet."""
    if row["open"]:
        return {"calls": row["calls"], "open": row["calls"]}
    source = {"calls": row["calls"], "input_tokens": row["input_tokens"], "output_tokens": row["output_tokens"]}
    above = {name: row[f"above_{name}"] for name in ("calls", *OVERSHOOT_COLUMNS) if row[f"above_{name}"]}
    return {
        "calls": row["calls"],
        "open": 0,
        "usage": {column: {"sum": row[column], "unknown": row[f"{column}_unknown"]} for column in USAGE_COLUMNS},
        "charge": {column: row[f"charged_{column}"] for column in CHARGES},
        "sources": {cast(str, row["source"]): source},
        **({"overshoot": above} if above else {}),
    }


def _list(labels: set[str]) -> str:
    return ", ".join(label or "(none)" for label in sorted(labels))
