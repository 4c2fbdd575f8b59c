"""Adds the whole ledger again and names the first entry that does not fit.

Held against each other: every hash, sequence and number; the columns beside an entry and the entry; what each call's entries may be and post; openings,
receipts and the lines that vouch for them; in the end balances and call rows against what the journal makes of them. What it can't see by itself (a tail cut
off, a chain written anew) it sees against receipts or heads that were kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from gateway.accounting.call_row import COLUMNS
from gateway.accounting.chain import FIRST_HASH, canonical, decode, link
from gateway.accounting.entries import LedgerEntry
from gateway.accounting.tally import Content
from gateway.ledger.anchors import Anchor, anchors_in
from gateway.ledger.backup import is_backup
from gateway.ledger.recount import Misfit, Recount
from gateway.ledger.written import entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    entries: int
    problem: str = ""
    """What does not fit; empty where everything does."""
    number: int | None = None
    """The first entry that does not fit; None where it is no single entry (a balance, a call row, a chain that is gone)."""
    chain: str = ""
    against: int = 0
    """How many receipts and heads were held against it."""
    after_backup: int = 0
    """How many of these are younger than the backup that this ledger is, or goes on from: they vouch for what was never in it."""

    @property
    def fits(self) -> bool:
        return not self.problem


@dataclass(slots=True)
class _Walk:
    """What has been seen so far."""

    heads: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    last_number: int = 0
    restored: list[dict[str, int]] = field(default_factory=list)
    """Where each chain ended when a restored backup began to serve."""
    recount: Recount = field(default_factory=Recount)

    def step(self, entry: LedgerEntry) -> None:
        """Raises Misfit."""
        if entry.number != self.last_number + 1:
            raise Misfit(f"entry {self.last_number + 1} is missing", self.last_number + 1)
        self.last_number = entry.number
        content = _content(entry)
        sequence, previous = self.heads.get(entry.chain) or (0, self._first_hash(entry))
        if entry.previous_hash != previous:
            raise Misfit("it is not tied to the entry before it in its chain")
        if entry.hash != link(previous, entry.body):
            raise Misfit("its hash is not that of its content")
        if entry.sequence != sequence + 1:
            raise Misfit(f"it is number {entry.sequence} of its chain, after number {sequence}")
        if entry.kind == "restored":
            self.backed_up()
        self.heads[entry.chain] = (entry.sequence, entry.hash)
        self.recount.add(entry, content)

    def backed_up(self) -> None:
        """What stands now is what a backup held."""
        self.restored.append({chain: sequence for chain, (sequence, _) in self.heads.items()})

    def after_backup(self, anchor: Anchor) -> bool:
        """Whether it vouches for an entry that came after a backup which this ledger goes on from."""
        return any(anchor.sequence > ends.get(anchor.chain, 0) for ends in self.restored)

    def _first_hash(self, entry: LedgerEntry) -> bytes:
        if not entry.chain.startswith("run:"):
            return FIRST_HASH
        opening = self.recount.openings.get((entry.campaign, entry.run))
        if opening is None:
            raise Misfit("its run was never opened")
        return opening.hash


def verify(connection: sqlite3.Connection, against: object = None) -> Verification:
    """Of one moment, also while a gateway writes."""
    anchors = {(anchor.chain, anchor.sequence): anchor for anchor in anchors_in(against)}
    text_factory, connection.text_factory = connection.text_factory, lambda raw: raw.decode("utf-8", "replace")
    walk = _Walk()
    try:
        connection.execute("BEGIN")
        return _verify(connection, walk, anchors, sum(1 for _ in anchors_in(against)))
    except sqlite3.Error as error:
        return Verification(entries=walk.last_number, problem=f"the file is damaged after entry {walk.last_number}: {error}", number=walk.last_number + 1)
    finally:
        connection.text_factory = text_factory
        connection.rollback()


def _verify(connection: sqlite3.Connection, walk: _Walk, anchors: dict[tuple[str, int], Anchor], given: int) -> Verification:
    entry: LedgerEntry | None = None
    younger = 0
    try:
        for entry in entries(connection):
            walk.step(entry)
            anchor = anchors.pop((entry.chain, entry.sequence), None)
            if anchor is not None and anchor.hash != entry.hash.hex():
                if not walk.after_backup(anchor):
                    raise Misfit("a receipt or head that was kept names another hash here: the chain was written anew")
                younger += 1
    except Misfit as misfit:
        assert entry is not None
        return Verification(entries=walk.last_number, problem=str(misfit), number=misfit.number or entry.number, chain=entry.chain, against=given)
    if is_backup(connection):
        walk.backed_up()
    younger += sum(map(walk.after_backup, anchors.values()))
    for anchor in anchors.values():
        if walk.after_backup(anchor):
            continue
        end = walk.heads.get(anchor.chain)
        gone = f"ends at {end[0]}: its tail was dropped" if end else "is not there: it was dropped"
        problem = f"a receipt or head that was kept names number {anchor.sequence} of chain {anchor.chain}, which {gone}"
        return Verification(entries=walk.last_number, problem=problem, chain=anchor.chain, against=given)
    problem = next(_derived(connection, walk.recount), "")
    return Verification(entries=walk.last_number, problem=problem, against=given, after_backup=younger)


def _content(entry: LedgerEntry) -> Content:
    """Raises Misfit."""
    try:
        content = decode(entry.body)
        if canonical(content) != entry.body:
            raise Misfit("its content is not in canonical form")
    except ValueError as error:
        raise Misfit(f"its content can't be read: {error}") from error
    if not isinstance(content, dict):
        raise Misfit("its content is no object")
    beside = {"number": entry.number, "chain": entry.chain, "sequence": entry.sequence, "kind": entry.kind, "at_ms": entry.at_ms}
    for name, value in beside.items():
        if content.get(name) != value:
            raise Misfit(f"its column {name} says {value!r}, its content {content.get(name)!r}")
    if content.get("call", "") != entry.call_id:
        raise Misfit(f"its column call_id says {entry.call_id!r}, its content {content.get('call', '')!r}")
    if entry.run and (content.get("campaign"), content.get("run")) != (entry.campaign, entry.run):
        raise Misfit("it stands in another run's chain")
    return content


def _derived(connection: sqlite3.Connection, recount: Recount) -> Iterator[str]:
    """Balances and call rows that differ from what the journal makes of them."""
    stand = {key: (reserved, settled) for key, reserved, settled in connection.execute("SELECT account, reserved, settled FROM accounts")}
    for key in sorted(stand.keys() | recount.balances.keys()):
        here, there = stand.get(key, (0, 0)), recount.balances.get(key, (0, 0))
        if here != there:
            yield f"account {key} stands at {here[0]} reserved, {here[1]} settled; its postings add up to {there[0]}, {there[1]}"
    rows = dict(recount.rows)
    for row in connection.execute(f"SELECT {', '.join(COLUMNS)} FROM call_records"):
        made = rows.pop(cast(str, row[0]), None)
        if made is None:
            yield f"call {row[0]} has a row, but no entry"
        elif made != row:
            column = next(name for name, one, other in zip(COLUMNS, made, row, strict=True) if one != other)
            yield f"call {row[0]}: its row differs from its entries in {column}"
    for call_id in rows:
        yield f"call {call_id} has entries, but no row"
