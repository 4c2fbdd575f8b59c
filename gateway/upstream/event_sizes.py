"""How many bytes an event has at engines that send each token by itself, learned from counts of what they sent.

With that known, a stream of such an engine need not be counted to see that it obeys its ceiling: its events say how many tokens it made.
"""

from __future__ import annotations

from typing import Final

EVENTS_KNOWN: Final = 16
"""So many make a size."""
LARGER: Final = 1.25
"""Of the size: a stream whose events are larger on average is counted, for they may hold several tokens."""


class EventSizes:
    """By upstream and model: as many as are declared."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[int, int]] = {}

    def single_token_bytes(self, upstream: str, model: str) -> float:
        """An event that is no larger, on average, holds one token; 0 where that is not known."""
        seen_bytes, events = self._seen.get((upstream, model), (0, 0))
        return seen_bytes / events * LARGER if events >= EVENTS_KNOWN else 0.0

    def learn(self, upstream: str, model: str, *, seen_bytes: int, events: int, single: bool) -> None:
        """`single`: a count found no more tokens than events."""
        if not single:
            self._seen.pop((upstream, model), None)
            return
        before = self._seen.get((upstream, model), (0, 0))
        self._seen[upstream, model] = (before[0] + seen_bytes, before[1] + events)
