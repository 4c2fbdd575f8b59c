"""The watch over the phases of an answer.

One timer a call, not one a chunk: it looks when the nearest time-out could be due, whatever is heard meanwhile, and sleeps on where none is. Time that the
reader takes for itself (a slow agent) is not the engine's silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """One a phase, in seconds."""

    connect_s: float = 10
    """TCP and TLS."""
    first_byte_s: float = 600
    """From sending to the first byte of the body: a long prompt is read in this time."""
    between_chunks_s: float = 120
    whole_s: float = 3_600


class Passing(Protocol):
    passed_at: float
    """Loop time at which something was passed on that the watch was not told of."""


class Watch:
    """Closes the answer when a phase takes too long, and remembers which."""

    __slots__ = ("_close", "_handle", "_loop", "_timeouts", "expired", "first_byte_at", "started", "taker", "waiting_since")

    def __init__(self, loop: asyncio.AbstractEventLoop, started: float, timeouts: Timeouts) -> None:
        self._loop = loop
        self.started = started
        self._timeouts = timeouts
        self._handle: asyncio.TimerHandle | None = None
        self._close: Callable[[], None] | None = None
        self.expired = ""
        self.first_byte_at: float | None = None
        self.waiting_since: float | None = None
        self.taker: Passing | None = None

    @property
    def head_due(self) -> float:
        """Loop time at which the answer's head must be here."""
        return self._due(self.started)[1]

    @property
    def head_phase(self) -> str:
        return self._due(self.started)[0]

    def now(self) -> float:
        return self._loop.time()

    def begin(self, close: Callable[[], None]) -> None:
        """Nothing is due yet: it looks first when the shortest time-out has passed."""
        self._close = close
        times = self._timeouts
        self._handle = self._loop.call_at(self.started + min(times.first_byte_s, times.between_chunks_s, times.whole_s), self._look)

    def heard(self) -> None:
        """The first byte: from now on silence between chunks is what is watched."""
        self.first_byte_at = self._loop.time()

    def end(self) -> None:
        self._close = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        close = self._close
        if close is None:
            return
        now = self._loop.time()
        phase, due = self._due(now)
        if due <= now:
            self.expired = phase
            self.end()
            close()
        else:
            self._handle = self._loop.call_at(min(due, now + self._timeouts.between_chunks_s), self._look)

    def _due(self, now: float) -> tuple[str, float]:
        whole = self.started + self._timeouts.whole_s
        if self.first_byte_at is None:
            phase, due = "first_byte", self.started + self._timeouts.first_byte_s
        else:
            since = now if self.waiting_since is None else self.waiting_since
            if self.taker is not None:
                since = max(since, self.taker.passed_at)
            phase, due = "between_chunks", since + self._timeouts.between_chunks_s
        return ("whole", whole) if whole <= due else (phase, due)
