"""What the agent of a run was told of its limits, so that it hears of each once and no number that it is told rises.

The rule: what is left, as told, rises only where what is settled has fallen: by a correction or a late settlement.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache


class Telling:
    """Of one run. A warning survives a restart, because it is on record; what was left is told anew."""

    __slots__ = ("_told", "_warned")

    def __init__(self, warned: Iterable[str] = ()) -> None:
        self._warned = set(warned)
        self._told: dict[str, tuple[int, int]] = {}
        """Account -> what was left as told last, and what was settled at that moment."""

    def left(self, account: str, left: int, settled: int) -> int:
        """What to tell: `left` was right before the call began; `settled` is what stands on the account now."""
        told = self._told.get(account)
        if told is not None and settled >= told[1]:
            left = min(left, told[0])
        self._told[account] = left, settled
        return left

    def warn(self, account: str) -> bool:
        """Whether it is to be warned now; it was not before."""
        if account in self._warned:
            return False
        self._warned.add(account)
        return True

    def unwarn(self, accounts: Iterable[str]) -> None:
        """The call that would have carried the warning was not sent."""
        self._warned.difference_update(accounts)


@lru_cache(maxsize=256)
def warns_from(warn_at: float, ceiling: int) -> int:
    """The smallest whole number that is at least this part of a ceiling; in decimals, as the policy writes it."""
    exact = Fraction(repr(warn_at)) * ceiling
    return -(-exact.numerator // exact.denominator)
