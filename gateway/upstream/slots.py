"""How many calls an upstream may run at once, and how many run. The number may change at any time; what runs is never stopped for it."""

from __future__ import annotations

from collections.abc import Mapping


class Slots:
    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = dict(numbers)
        self._busy: dict[str, int] = {}

    def set(self, engine: str, number: int) -> None:
        self._numbers[engine] = number

    def busy(self, engine: str) -> int:
        return self._busy.get(engine, 0)

    def any_free(self, engine: str) -> bool:
        """An upstream that nobody declared has none."""
        return self._numbers.get(engine, 0) > self._busy.get(engine, 0)

    def take(self, engine: str) -> None:
        self._busy[engine] = self._busy.get(engine, 0) + 1

    def free(self, engine: str) -> None:
        busy = self._busy.get(engine, 0)
        if busy <= 0:
            raise ValueError(f"no slot of {engine!r} is taken")
        self._busy[engine] = busy - 1
