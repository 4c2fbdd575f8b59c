"""What stands on each account, in memory.

Rule: a balance is the sum of the lines applied to it, never set by hand; who must know of changes is told of every line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from gateway.accounting.entries import PostingLine
from gateway.accounting.limit import Account, Balance
from gateway.accounting.quantity import NOTHING, Amounts, Quantity, measure

Numbers = tuple[int, int]
"""Reserved and settled: a balance, where a dozen are made for every call."""
NO_NUMBERS: Numbers = (0, 0)
Watcher = Callable[[tuple[PostingLine, ...]], object]


class Balances:
    """Accounts that were never touched stand at nothing and take no room."""

    def __init__(self, standing: Mapping[Account, Balance] | None = None) -> None:
        self._accounts: dict[str, Account] = {account.key: account for account in standing or ()}
        self._of: dict[str, Numbers] = {account.key: (balance.reserved, balance.settled) for account, balance in (standing or {}).items()}
        """By the account's key: a text knows its hash, an account would be asked for it a hundred times a call."""
        self._watchers: list[Watcher] = []

    def of(self, account: Account) -> Balance:
        return Balance(*self._of.get(account.key, NO_NUMBERS))

    @property
    def numbers(self) -> Mapping[str, Numbers]:
        """The same as `of`, by accounts' keys, for those who ask for all of a call's at once. An account that was never touched is not in it."""
        return self._of

    def apply(self, lines: Iterable[PostingLine]) -> None:
        applied = tuple(lines)
        of = self._of
        for account, reserved, settled in applied:
            key = account.key
            before = of.get(key)
            if before is None:
                self._accounts[key] = account
                of[key] = reserved, settled
            else:
                was_reserved, was_settled = before
                of[key] = was_reserved + reserved, was_settled + settled
        for watcher in self._watchers:
            watcher(applied)

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` with the lines of every later `apply`, after they took effect."""
        self._watchers.append(watcher)

    def forget(self, accounts: Iterable[Account]) -> None:
        """Drop accounts that nobody will ask for again (a closed run's, a past day's)."""
        for account in accounts:
            self._of.pop(account.key, None)
            self._accounts.pop(account.key, None)

    def __iter__(self) -> Iterator[tuple[Account, Balance]]:
        return ((self._accounts[key], Balance(*numbers)) for key, numbers in self._of.items())

    def __len__(self) -> int:
        return len(self._of)


def postings(
    accounts: Iterable[Account], *, hold: Amounts = NOTHING, release: Amounts = NOTHING, charge: Amounts = NOTHING, refund: Amounts = NOTHING
) -> tuple[PostingLine, ...]:
    """One line for each account that changes: `hold` and `release` move what is reserved, `charge` and `refund` what is settled."""
    lines = []
    changes: dict[Quantity, tuple[int, int]] = {}
    for account in accounts:
        quantity = account.quantity
        change = changes.get(quantity)
        if change is None:
            reserved = measure(quantity, hold) - measure(quantity, release)
            change = changes[quantity] = reserved, measure(quantity, charge) - measure(quantity, refund)
        if change != (0, 0):
            lines.append(PostingLine(account, *change))
    return tuple(lines)
