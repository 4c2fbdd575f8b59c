"""What the books write: entries of a chain and the postings that go with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gateway.accounting.limit import Account
from gateway.frozen import frozen


class PostingLine(NamedTuple):
    """A change of one account. A tuple, because a dozen are made for every entry."""

    account: Account
    reserved: int
    settled: int


tuple_as = tuple.__new__
"""Makes a named tuple at a third of the price: without a Python frame."""


@frozen
class LedgerEntry:
    """Added, never changed."""

    number: int
    """Rises over the whole ledger, from 1."""
    chain: str
    """`gateway`, `campaign:C`, `run:C/R`"""
    sequence: int
    """Rises by one within its chain, from 1."""
    kind: str
    at_ms: int
    campaign: str
    run: str
    call_id: str
    body: bytes
    """Canonical JSON (RFC 8785) of the whole entry, number, chain, sequence, kind, time, names and postings included: what is hashed."""
    previous_hash: bytes
    hash: bytes
    """SHA-256 over the 32 bytes of `previous_hash` and `body`."""


@frozen
class Posting:
    """What one command wrote. `standing` where it was posted before: then nothing new was written."""

    entries: tuple[LedgerEntry, ...]
    lines: tuple[PostingLine, ...]
    standing: bool = False
    content: Mapping[str, object]
    """The first entry's content as an object."""
