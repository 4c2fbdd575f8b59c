"""What a store must do: keep entries and what follows from them, each batch of commands wholly or not at all. It holds no rule about limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from gateway.accounting.commands import Command
from gateway.accounting.entries import LedgerEntry, Posting
from gateway.accounting.limit import Account, Balance
from gateway.accounting.standing import Standing
from gateway.errors import CommandRejected

RefusalCounts = dict[tuple[str, str, str, str], int]
"""How many refusals of (campaign, run, code, limit's name) stand singly."""


class Store(Protocol):
    """One process writes at a time. Every method raises LedgerUnavailable where the disk does not answer."""

    def migrate(self) -> None:
        """Brings the schema to this release's; raises ConfigurationError for a ledger of a later release."""
        ...

    def is_backup(self) -> bool:
        """Whether it was marked as a copy, and nobody has accepted that since."""
        ...

    def accept(self) -> None:
        """Takes the mark of a copy away."""
        ...

    def load(self) -> Standing:
        """What stands, read anew; what was cached is dropped. To be called before the first post and after one that failed."""
        ...

    def post(self, commands: Sequence[Command]) -> list[Posting | CommandRejected]:
        """One durable transaction. A command that is rejected leaves no trace and does not disturb the others; a failure undoes the whole batch."""
        ...

    def probe(self) -> None:
        """Writes and commits something that changes nothing: raises LedgerUnavailable while the disk does not take it."""
        ...

    def entries(self, *, chain: str = "", after: int = 0) -> Iterator[LedgerEntry]:
        """In order of number, those after a number; of one chain or all."""
        ...

    def balances(self) -> dict[Account, Balance]: ...

    def refusal_counts(self) -> RefusalCounts: ...

    def close(self) -> None: ...
