"""Keeps bodies while calls run: handed over at once, packed and written by one thread of its own.

What waits to be written is bounded, and so is what is kept in all; beyond either a body is let go and counted. Nothing that was kept is ever removed here.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.capture.answers import AnswerTape
from gateway.capture.store import BodyStore, packed

RECOUNT_S: Final = 60
"""While it is full: somebody may have pruned."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Handed over and not yet written: a slow disk must not eat the process's memory."""

Counted = Callable[[str], object]
"""Told of each body: `kept`, `known` (it was there), `full`, `behind`, `too_long`, `failed`."""


class Keeper:
    """`max_bytes`: of all files. Used from one thread; the writing thread starts with the first body."""

    def __init__(self, store: BodyStore, max_bytes: int, counted: Counted = lambda what: None) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._counted = counted
        self._waiting: deque[tuple[int, Callable[[], str]]] = deque()
        self._waiting_bytes = 0
        self._held = -1
        self._counted_at = 0.0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def keep(self, raw: bytes) -> None:
        """A request's body."""
        self._hand_over(len(raw), lambda: self._kept(hashlib.sha256(raw).hexdigest(), lambda: packed(raw)))

    def keep_answer(self, call_id: str, tape: AnswerTape) -> None:
        """What an agent got; it is found by its call."""
        self._hand_over(tape.held, lambda: self._answer_kept(call_id, tape))

    def _hand_over(self, size: int, work: Callable[[], str]) -> None:
        with self._changed:
            if self._stopped or self._waiting_bytes + size > WAITING_BYTES_MAX:
                self._counted("behind")
                return
            self._waiting.append((size, work))
            self._waiting_bytes += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="capture", daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self, seconds: float) -> None:
        """Writes what waits, for at most so long."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(seconds)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._stopped:
                    self._changed.wait()
                if not self._waiting:
                    return
                size, work = self._waiting.popleft()
                self._waiting_bytes -= size
            try:
                result = work()
            except OSError:
                result = "failed"
            self._counted(result)

    def _answer_kept(self, call_id: str, tape: AnswerTape) -> str:
        digest, gzipped = tape.done()
        if not gzipped:
            return "too_long"
        result = self._kept(digest, lambda: gzipped)
        if result in ("kept", "known"):
            self._store.name_answer(call_id, digest)
        return result

    def _count(self) -> None:
        self._held = sum(size for _, size in self._store.digests())
        self._counted_at = time.monotonic()

    def _kept(self, digest: str, gzipped: Callable[[], bytes]) -> str:
        if self._held < 0:
            self._count()
        if self._store.has(digest):
            return "known"
        data = gzipped()
        if self._held + len(data) > self._max_bytes and time.monotonic() - self._counted_at >= RECOUNT_S:
            self._count()
        if self._held + len(data) > self._max_bytes:
            return "full"
        self._held += self._store.keep(digest, data)
        return "kept"
