"""What stands on each account, in memory.

Rule: a balance is the sum of the lines applied to it, never set by hand; who must know of changes is told of every line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from gateway.accounting.entries import PostingLine
from gateway.accounting.limit import Account, Balance
from gateway.accounting.quantity import NOTHING, Amounts, Quantity, measure

NO_BALANCE = Balance()
Watcher = Callable[[tuple[PostingLine, ...]], object]


class Balances:
    """Accounts that were never touched stand at nothing and take no room."""

    def __init__(self, standing: Mapping[Account, Balance] | None = None) -> None:
        self._of: dict[Account, Balance] = dict(standing or {})
        self._watchers: list[Watcher] = []

    def of(self, account: Account) -> Balance:
        return self._of.get(account, NO_BALANCE)

    def apply(self, lines: Iterable[PostingLine]) -> None:
        applied = tuple(lines)
        for line in applied:
            balance = self._of.get(line.account, NO_BALANCE)
            self._of[line.account] = Balance(balance.reserved + line.reserved, balance.settled + line.settled)
        for watcher in self._watchers:
            watcher(applied)

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` with the lines of every later `apply`, after they took effect."""
        self._watchers.append(watcher)

    def forget(self, accounts: Iterable[Account]) -> None:
        """Drop accounts that nobody will ask for again (a closed run's, a past day's)."""
        for account in accounts:
            self._of.pop(account, None)

    def __iter__(self) -> Iterator[tuple[Account, Balance]]:
        return iter(self._of.items())

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
