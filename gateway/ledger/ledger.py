"""The ledger as the rest of the house sees it: post a command, await its posting; what has been answered is on the disk.

Lives in one event loop. Commands gather while a batch is being written, and a moment longer where more come, and go as the next one (group commit), in the
order in which they were posted.
What a reservation or an opening takes is taken from `balances` at the call of `post` and given back if it is not written; everything else changes them when
it is written, before its future resolves. A future that is cancelled cancels nothing: who stops waiting for a reservation posts a void behind it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gateway.accounting.balances import Balances
from gateway.accounting.books import opening_lines
from gateway.accounting.commands import AcceptClock, BeginClosing, Command, Expire, OpenRun, RefusalSummary, Refuse, Reserve
from gateway.accounting.entries import Posting, PostingLine
from gateway.accounting.limit import Account, Balance
from gateway.errors import CommandRejected, LedgerUnavailable
from gateway.ledger.backup import check_mark, restoring
from gateway.ledger.clock import LedgerClock
from gateway.ledger.committer import Committed, Committer
from gateway.ledger.connect import connect, ledger_path
from gateway.ledger.disk import FreeSpace
from gateway.ledger.gathering import Gathering
from gateway.ledger.lock import LedgerLock
from gateway.ledger.refusals import SUMMARY_EVERY_MS, RefusalSums
from gateway.ledger.state import LedgerState, state_of
from gateway.ledger.store import Store

BATCH_MAX = 512
"""Commands in one transaction: a stall must not turn into one that takes seconds."""
BACKLOG_MAX = 20_000
"""Commands that wait: beyond it the disk has stopped answering, and posting fails at once."""
PROBE_AFTER_S = 0.5
"""After a failed commit the disk is tried again this often."""

_TAKING = (Reserve, OpenRun)
"""What takes from the balances at the call of `post`."""
NOTHING_WRITTEN = Posting(entries=(), lines=(), content={})


@dataclass(slots=True)
class _Posted:
    command: Command
    future: asyncio.Future[Posting]
    taken: tuple[PostingLine, ...]
    """What was taken from the balances in advance."""


class Ledger:
    def __init__(self, store: Store, lock: LedgerLock, clock: LedgerClock, committer: Committer, space: FreeSpace) -> None:
        self.balances = Balances(store.balances())
        self.clock = clock
        self.now_ms = clock.now_ms
        self._store = store
        self._lock = lock
        self._committer = committer
        self._space = space
        self._sums = RefusalSums(store.refusal_counts())
        self._waiting: list[_Posted] = []
        self._in_flight: list[_Posted] = []
        self._busy = False
        self._gathering = Gathering(lambda: self._waiting, self._hand_over)
        self._closed = False
        self._failure: LedgerUnavailable | None = None
        self._idle: list[asyncio.Future[None]] = []
        self._summary_timer: asyncio.TimerHandle | None = None
        self._handed_over_s = 0.0
        self.failures = 0
        """Commits that failed."""
        self._on_release: list[Callable[[], object]] = []
        self._on_commit: list[Callable[[float, int], object]] = []

    @classmethod
    def open(cls, path: str | Path, *, min_free_bytes: int = 0, clock: LedgerClock | None = None, accept_restore: bool = False) -> Ledger:
        """Takes the lock, migrates, closes a dead process's reservations as lost. Raises LedgerLocked, LedgerUnavailable, ConfigurationError.

        `accept_restore`: the file is a backup, and a person knows; else a backup is refused.
        """
        file = ledger_path(path)
        lock = LedgerLock(file)
        store: Store | None = None
        try:
            store = connect(path)
            check_mark(file, marked=store.is_backup(), accepted=accept_restore)
            store.migrate()
            standing = store.load()
            clock = clock or LedgerClock()
            clock.start(standing.at_ms)
            first: list[Command] = restoring(standing, clock.now_ms()) if accept_restore else []
            first += [Expire(call_id=call_id, at_ms=clock.now_ms(), reason="process ended") for call_id in standing.calls]
            for at in range(0, len(first), BATCH_MAX):
                store.post(first[at : at + BATCH_MAX])
            if accept_restore:
                store.accept()
            return cls(store, lock, clock, Committer(store, standing), FreeSpace(file, min_free_bytes))
        except BaseException:
            if store is not None:
                store.close()
            lock.release()
            raise

    # -- asking

    def admissible(self) -> None:
        """Raises LedgerUnavailable or ClockUncertain where nothing may be admitted now."""
        if self._failure is not None:
            raise LedgerUnavailable(str(self._failure)) from self._failure
        if self._closed:
            raise LedgerUnavailable("the ledger is closed")
        self._space.check()
        self.clock.check()

    @property
    def backlog(self) -> int:
        """Commands that are not durable yet."""
        return len(self._waiting) + len(self._in_flight)

    @property
    def lag_s(self) -> float:
        """How long the commit under way has taken."""
        return time.monotonic() - self._handed_over_s if self._busy else 0.0

    @property
    def file(self) -> Path:
        """Where it lies, without symlinks."""
        return self._lock.ledger

    def state(self) -> LedgerState:
        return state_of(self._committer.standing)

    def on_release(self, callback: Callable[[], object]) -> None:
        """Called after any commit that lowered a reservation or changed what is settled."""
        self._on_release.append(callback)

    def on_commit(self, callback: Callable[[float, int], object]) -> None:
        """Called with the seconds and the commands of each commit."""
        self._on_commit.append(callback)

    # -- posting

    def post(self, command: Command) -> asyncio.Future[Posting]:
        """Durable when it resolves. Raises through the future: CommandRejected; LedgerUnavailable, after which it may be posted again as it is."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Posting] = loop.create_future()
        if self._closed or len(self._waiting) >= BACKLOG_MAX:
            future.set_exception(LedgerUnavailable("the ledger is closed" if self._closed else "the ledger's disk does not keep up"))
            return future
        if isinstance(command, Refuse) and not self._sums.stands_singly(command):
            self._arm_summaries(loop)
            future.set_result(NOTHING_WRITTEN)
            return future
        if isinstance(command, BeginClosing):
            self._post_summaries(self._sums.flush(command.at_ms, command.campaign, command.run))
            self._sums.forget(command.campaign, command.run)
        taken: tuple[PostingLine, ...] = ()
        if isinstance(command, _TAKING):
            taken = opening_lines(command)
            self.balances.apply(taken)
        self._waiting.append(_Posted(command, future, taken))
        if not self._busy:
            self._gathering.begin()
        return future

    async def accept_clock(self, reason: str = "") -> Posting:
        """A person says that the system's clock is right."""
        last_entry_ms = self._committer.standing.at_ms
        previous_ms = self.clock.now_ms()
        posting = await self.post(AcceptClock(at_ms=self.clock.accepted_ms(last_entry_ms), previous_ms=previous_ms, reason=reason))
        self.clock.accept(last_entry_ms)
        return posting

    async def close(self) -> None:
        """Writes what waits, sums of refusals included, and lets go of the file."""
        if self._closed:
            return
        self._post_summaries(self._sums.flush(self.now_ms()))
        self._closed = True
        if self._summary_timer is not None:
            self._summary_timer.cancel()
        while self._busy or self._waiting:
            idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle
        self._committer.stop()
        self._store.close()
        self._lock.release()

    # -- commits

    def _hand_over(self) -> None:
        if self._busy or not self._waiting:
            return
        self._in_flight, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
        self._submit()

    def _submit(self) -> None:
        self._busy = True
        self._handed_over_s = time.monotonic()
        self._committer.submit([posted.command for posted in self._in_flight], asyncio.get_running_loop(), self._done)

    def _probe(self) -> None:
        if self._failure is not None and not self._busy and not self._waiting and not self._closed:
            self._in_flight = []
            self._submit()

    def _done(self, committed: Committed) -> None:
        batch, self._in_flight, self._busy = self._in_flight, [], False
        if committed.failure is not None:
            self._failed(batch, committed.failure)
        else:
            self._failure = None
            if committed.balances is not None:
                self._reconcile(batch, committed.balances)
            self._succeeded(batch, committed)
        for observe in self._on_commit:
            observe(committed.seconds, len(batch))
        if self._waiting:
            self._gathering.begin()
            return
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
        self._idle.clear()

    def _succeeded(self, batch: list[_Posted], committed: Committed) -> None:
        released = committed.balances is not None
        for posted, answer in zip(batch, committed.answers, strict=True):
            if isinstance(answer, CommandRejected) or answer.standing:
                released |= self._give_back(posted)
            elif answer.lines and not posted.taken:
                self.balances.apply(answer.lines)
                released = True
        for posted, answer in zip(batch, committed.answers, strict=True):
            if posted.future.done():
                continue  # its waiter has left
            if isinstance(answer, CommandRejected):
                posted.future.set_exception(answer)
            else:
                posted.future.set_result(answer)
        if released:
            self._released()

    def _failed(self, batch: list[_Posted], failure: LedgerUnavailable) -> None:
        self._failure = failure
        self.failures += 1
        for posted in batch:
            self._give_back(posted)
        for posted in batch:
            if not posted.future.done():
                posted.future.set_exception(LedgerUnavailable(str(failure)))
        asyncio.get_running_loop().call_later(PROBE_AFTER_S, self._probe)
        self._released()

    def _give_back(self, posted: _Posted) -> bool:
        if posted.taken:
            self.balances.apply(PostingLine(line.account, -line.reserved, -line.settled) for line in posted.taken)
        return bool(posted.taken)

    def _reconcile(self, batch: list[_Posted], in_file: dict[Account, Balance]) -> None:
        """After a failure: balances are what the file held before this batch and what has been taken in advance since."""
        right = Balances(in_file)
        for posted in (*batch, *self._waiting):
            right.apply(posted.taken)
        here = dict(self.balances)
        for account in here.keys() | dict(right).keys():
            is_, should = self.balances.of(account), right.of(account)
            if is_ != should:
                self.balances.apply([PostingLine(account, should.reserved - is_.reserved, should.settled - is_.settled)])

    def _released(self) -> None:
        for callback in self._on_release:
            callback()

    # -- sums of refusals

    def _arm_summaries(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._summary_timer is None and len(self._sums):
            self._summary_timer = loop.call_later(SUMMARY_EVERY_MS / 1000, self._summaries_due)

    def _summaries_due(self) -> None:
        self._summary_timer = None
        self._post_summaries(self._sums.due(self.now_ms()))
        self._arm_summaries(asyncio.get_running_loop())

    def _post_summaries(self, summaries: list[RefusalSummary]) -> None:
        for summary in summaries:
            self.post(summary).add_done_callback(partial(self._summary_posted, summary))

    def _summary_posted(self, summary: RefusalSummary, future: asyncio.Future[Posting]) -> None:
        if not future.cancelled() and isinstance(future.exception(), LedgerUnavailable) and not self._closed:
            self._sums.take_back(summary)
            self._arm_summaries(asyncio.get_running_loop())
