"""How many calls an upstream may run at once, and how many run. The number may change at any time; what runs is never stopped for it.

None at all: the upstream is out, as one that is down or drained. It gets no calls until it has some again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Slots:
    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = dict(numbers)
        self._busy: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        """When each was last taken, as a running number."""
        self._tick = 0
        self.changes = 0
        """Rises with every change: while it stands, what was found out about slots stands too."""

    def set(self, engine: str, number: int) -> None:
        self.changes += 1
        self._numbers[engine] = number

    def busy(self, engine: str) -> int:
        return self._busy.get(engine, 0)

    def out(self, engine: str) -> bool:
        """An upstream that nobody declared is out too."""
        return self._numbers.get(engine, 0) <= 0

    def any_free(self, engine: str) -> bool:
        return self._numbers.get(engine, 0) > self._busy.get(engine, 0)

    def free_of(self, engines: Sequence[str]) -> list[str]:
        """The emptiest first, and of equals the one that was taken longest ago."""
        free = [engine for engine in engines if self.any_free(engine)]
        if len(free) > 1:
            free.sort(key=self._load)
        return free

    def take(self, engine: str) -> None:
        self.changes += 1
        self._tick += 1
        self._taken[engine] = self._tick
        self._busy[engine] = self._busy.get(engine, 0) + 1

    def free(self, engine: str) -> None:
        busy = self._busy.get(engine, 0)
        if busy <= 0:
            raise ValueError(f"no slot of {engine!r} is taken")
        self.changes += 1
        self._busy[engine] = busy - 1

    def _load(self, engine: str) -> tuple[float, int]:
        return self._busy.get(engine, 0) / max(1, self._numbers.get(engine, 0)), self._taken.get(engine, 0)
