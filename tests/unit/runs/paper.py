"""The real books on paper: everything in memory, and a commit happens when the test lets it, or fails when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from gateway.accounting.balances import Balances
from gateway.accounting.books import Books
from gateway.accounting.chain import decode
from gateway.accounting.commands import Command, OpenRun
from gateway.accounting.entries import LedgerEntry, Posting, PostingLine
from gateway.accounting.standing import CallBook, Content, Standing
from gateway.errors import CommandRejected, LedgerUnavailable
from gateway.ledger.state import LedgerState
from gateway.policy.declaration import GatewayLimits
from gateway.policy.loading import LoadedPolicy, policy_from_text
from gateway.runs.in_flight import InFlight
from gateway.runs.runs import Runs

POLICY = """
schema = 1
apis = ["openai.chat"]
timezone = "Europe/Berlin"

[models.small]
counter = "bytes"
overhead_tokens = 10

[lanes.foreground]
[lanes.background]

[call]
output_tokens = 512

[run]
requests = 10

[campaign]
runs = 7
"""


def policy(text: str = POLICY) -> LoadedPolicy:
    return policy_from_text(text, "small.toml")


class PaperPast:
    def __init__(self) -> None:
        self.written: list[LedgerEntry] = []

    def entry(self, number: int) -> LedgerEntry:
        return self.written[number - 1]

    def history(self, chain: str) -> Iterable[Content]:
        return [decode(entry.body) for entry in self.written if entry.chain == chain]

    def call(self, call_id: str) -> CallBook | None:
        return None


class PaperBook:
    """One commit a turn of the loop, unless `held`; each that `fails` raises LedgerUnavailable."""

    def __init__(self, state: LedgerState | None = None) -> None:
        self.balances = Balances()
        self.past = PaperPast()
        self.books = Books(Standing(), self.past)
        self.posted: list[Command] = []
        self.failing = False
        self.uncertain = False
        self.later_ms = 0
        """How far the test has moved the clock."""
        self._state = state or LedgerState()
        self._queue: list[tuple[Command, asyncio.Future[Posting]]] = []
        self._held = False

    def state(self) -> LedgerState:
        return self._state

    def now_ms(self) -> int:
        return 1_790_000_000_000 + len(self.posted) + self.later_ms

    def admissible(self) -> None:
        if self.uncertain:
            raise LedgerUnavailable("there is no room")

    def post(self, command: Command) -> asyncio.Future[Posting]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Posting] = loop.create_future()
        self.posted.append(command)
        if isinstance(command, OpenRun):
            self.balances.apply(_opening(command, 1))
        self._queue.append((command, future))
        if not self._held:
            loop.call_soon(self._commit)
        return future

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        self._held = False
        self._commit()

    def kinds(self) -> list[str]:
        return [type(command).__name__ for command in self.posted]

    def _commit(self) -> None:
        queue, self._queue = self._queue, []
        for command, future in queue:
            try:
                if self.failing:
                    raise LedgerUnavailable("the disk is gone")
                posting = self.books.post(command)
            except (LedgerUnavailable, CommandRejected) as error:
                if isinstance(command, OpenRun):
                    self.balances.apply(_opening(command, -1))
                future.set_exception(error)
                continue
            if not posting.standing:
                self.past.written.extend(posting.entries)
            future.set_result(posting)


def _opening(command: OpenRun, sign: int) -> list[PostingLine]:
    return [PostingLine(account, 0, sign) for account in command.accounts]


class World:
    """Runs over a paper book, with a count of wakings."""

    def __init__(self, state: LedgerState | None = None, gateway_limits: GatewayLimits | None = None) -> None:
        self.book = PaperBook(state)
        self.in_flight = InFlight()
        self.wakings = 0
        self.runs = Runs(self.book, gateway_limits or GatewayLimits(), in_flight=self.in_flight, on_change=self._wake)

    def _wake(self) -> None:
        self.wakings += 1

    async def open(self, *runs: str, campaign: str = "pilot", text: str = POLICY) -> dict[str, str]:
        """Campaign and runs; the foreground secret of each."""
        await self.runs.open_campaign(campaign, policy(text))
        return {run: (await self.runs.open_run(campaign, run)).keys["foreground"] or "" for run in runs}


async def until(condition: Callable[[], bool]) -> None:
    """Let others go on until it holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come about")
