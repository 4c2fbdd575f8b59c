"""The moments that change a wait: `clamp_after`, its end, the deadline, the end of its patience for one engine, and midnight.

Rule: whether a moment has come is asked of the ledger's clock, never of the timer that rang; a timer that rings early is set again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from gateway.accounting.decision import Patience
from gateway.upstream.waiter import Waiter


class Timer(Protocol):
    def cancel(self) -> object: ...


class Timers(Protocol):
    """The part of an event loop that is needed here."""

    def call_soon(self, callback: Callable[[], object], /) -> object: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...


class Alarms:
    """One timer a waiter, and one for the first window that ends."""

    def __init__(self, now_ms: Callable[[], int], timers: Timers, due: Callable[[Waiter], object], window_over: Callable[[], object]) -> None:
        self._now_ms = now_ms
        self._timers = timers
        self._due = due
        self._window_over = window_over
        self._of: dict[Waiter, Timer] = {}
        self._window_ms: int | None = None
        self._window_timer: Timer | None = None

    def set(self, waiter: Waiter) -> None:
        """For the waiter's next moment, where there is one. One that came before anybody looked (a wait of no time) is due at once."""
        self.cancel(waiter)
        now = self._now_ms()
        moments = [moment for moment in (waiter.clamp_ms, waiter.ends_ms, waiter.home_until_ms) if moment is not None and moment > now]
        if not waiter.over and (waiter.ends_ms <= now or (waiter.clamp_ms <= now and waiter.patience is Patience.REACH)):
            moments = [now]
        if moments:
            self._of[waiter] = self._timers.call_later((min(moments) - now) / 1000, lambda: self._due(waiter))

    def cancel(self, waiter: Waiter) -> None:
        timer = self._of.pop(waiter, None)
        if timer is not None:
            timer.cancel()

    def watch_window(self, waiter: Waiter) -> None:
        ends = waiter.window_ms
        if ends is not None and (self._window_ms is None or ends < self._window_ms):
            self._set_window(ends)

    def window_is_over(self) -> bool:
        return self._window_ms is not None and self._now_ms() >= self._window_ms

    def next_window(self, waiters: Iterable[Waiter]) -> None:
        """The waiters have resolved anew: which window ends first now?"""
        self._set_window(min((waiter.window_ms for waiter in waiters if waiter.window_ms is not None), default=None))

    def _set_window(self, ends_ms: int | None) -> None:
        if self._window_timer is not None:
            self._window_timer.cancel()
        self._window_ms = ends_ms
        self._window_timer = None
        if ends_ms is not None:
            self._window_timer = self._timers.call_later(max(ends_ms - self._now_ms(), 1) / 1000, self._ring_window)

    def _ring_window(self) -> None:
        if self.window_is_over():
            self._window_over()
        else:
            self._set_window(self._window_ms)
