"""Waiting for what another process or thread does: by looking, never by a fixed sleep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def eventually(true: Callable[[], object], what: str, *, timeout_s: float = 10.0, every_s: float = 0.01) -> None:
    """Returns once `true()` holds. Raises AssertionError, with `what` and what was seen last, after the time-out."""
    deadline = time.monotonic() + timeout_s
    while not (seen := true()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what} (seen last: {seen!r})"
        time.sleep(every_s)


async def eventually_async(true: Callable[[], object], what: str, *, timeout_s: float = 10.0, every_s: float = 0.01) -> None:
    """The same, giving the loop its turns."""
    deadline = time.monotonic() + timeout_s
    while not (seen := true()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what} (seen last: {seen!r})"
        await asyncio.sleep(every_s)
