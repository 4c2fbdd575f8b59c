"""The little of the ledger that this room uses. Whatever is posted is durable when its future resolves."""

from __future__ import annotations

from asyncio import Future
from typing import Protocol

from gateway.accounting.commands import Command
from gateway.accounting.entries import Posting
from gateway.accounting.limit import Account, Balance
from gateway.ledger.state import LedgerState


class Balances(Protocol):
    def of(self, account: Account) -> Balance: ...


class Book(Protocol):
    @property
    def balances(self) -> Balances: ...

    def post(self, command: Command) -> Future[Posting]: ...

    def now_ms(self) -> int: ...

    def admissible(self) -> None:
        """Raises LedgerUnavailable or ClockUncertain where nothing may begin."""

    def state(self) -> LedgerState: ...
