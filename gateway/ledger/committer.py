"""The one thread that writes: takes a batch, commits it, says how it went with one call into the loop.

After a failed commit nobody knows what is in the file. Then all that was cached is read anew before the next batch, calls that stand although their
reservation was reported as failed are voided (nothing was sent for them), and the balances that are in the file go back with the answer.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue

from gateway.accounting.commands import Command, Reserve, Void
from gateway.accounting.entries import Posting
from gateway.accounting.limit import Account, Balance
from gateway.accounting.standing import Standing
from gateway.errors import CommandRejected, LedgerUnavailable
from gateway.ledger.store import Store


@dataclass(slots=True)
class Committed:
    """How a batch went."""

    answers: list[Posting | CommandRejected] = field(default_factory=list)
    failure: LedgerUnavailable | None = None
    balances: dict[Account, Balance] | None = None
    """What the file held before this batch, where it had to be read anew."""
    seconds: float = 0.0


class Committer:
    def __init__(self, store: Store, standing: Standing) -> None:
        self.standing = standing
        self._store = store
        self._stale = False
        self._unsure: set[str] = set()
        """Calls whose reservation was reported as failed."""
        self._batches: SimpleQueue[tuple[asyncio.AbstractEventLoop, Callable[[Committed], None], Sequence[Command]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, commands: Sequence[Command], loop: asyncio.AbstractEventLoop, done: Callable[[Committed], None]) -> None:
        """`done` is called in the loop. An empty batch is a probe: it writes and commits, and changes nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="ledger", daemon=True)
            self._thread.start()
        self._batches.put((loop, done, commands))

    def stop(self) -> None:
        if self._thread is not None:
            self._batches.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (batch := self._batches.get()) is not None:
            loop, done, commands = batch
            committed = self._commit(commands)
            try:
                loop.call_soon_threadsafe(done, committed)
            except RuntimeError:
                pass  # the loop was closed under us: nobody is left to tell

    def _commit(self, commands: Sequence[Command]) -> Committed:
        committed = Committed()
        started_s = time.perf_counter()
        try:
            if self._stale:
                self._recover(commands)
                committed.balances = self._store.balances()
            if commands:
                committed.answers = self._store.post(commands)
            else:
                self._store.probe()
        except Exception as error:
            self._stale = True
            self._unsure.update(command.call_id for command in commands if isinstance(command, Reserve))
            committed.failure = error if isinstance(error, LedgerUnavailable) else LedgerUnavailable(f"{type(error).__name__}: {error}")
            committed.failure.__cause__ = error if committed.failure is not error else error.__cause__
            committed.balances = None
        committed.seconds = time.perf_counter() - started_s
        return committed

    def _recover(self, commands: Sequence[Command]) -> None:
        self.standing = self._store.load()
        asked_again = {command.call_id for command in commands if isinstance(command, Reserve)}
        stray = [call_id for call_id in self._unsure if call_id in self.standing.calls and call_id not in asked_again]
        if stray:
            self._store.post([Void(call_id=call_id, at_ms=self.standing.at_ms, reason="its reservation was reported as failed") for call_id in stray])
        self._unsure.clear()
        self._stale = False
