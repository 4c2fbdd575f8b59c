"""What stands at the moment when somebody reads the metrics: slots, the waiting place, engines, the ledger, and the budgets of open campaigns.

Rule: it is reckoned when it is asked for, so no call pays for it and what is closed leaves no series. Of campaigns at most `CAMPAIGNS_MAX` have series.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, cast

from gateway.accounting.limit import Account
from gateway.errors import ClockUncertain, LedgerUnavailable
from gateway.ledger.ledger import Ledger
from gateway.ledger.reading import LedgerReader
from gateway.ledger.state import CampaignStanding, RunStanding
from gateway.metrics.metrics import Metrics
from gateway.metrics.sums import Rows, Values
from gateway.reconcile.classes import Class
from gateway.runs.campaigns import CampaignState
from gateway.runs.left import LimitLeft
from gateway.runs.runs import Runs
from gateway.settings.settings import Settings
from gateway.upstream.circuit import Standing
from gateway.upstream.engines import Engines
from gateway.upstream.gate import Gate
from gateway.upstream.health import State
from gateway.upstream.waiter import WaitingView

CAMPAIGNS_MAX: Final = 50
"""Open campaigns whose names are labels: those that were opened first, so that a series does not go while its campaign is open."""
OTHER_CLASS: Final = "other"
REASONS: Final = ("slot", "limit", "count", "halted", "home", "engine")
_CLASSES: Final = frozenset(Class)


def waiting_reason(waiting: WaitingView) -> str:
    """What a call waits for: an end of the halt, a limit, the count of its prompt, an engine that takes calls, its own engine, or a slot (also a turn)."""
    if waiting.halted:
        return "halted"
    if waiting.in_the_way is not None:
        return "limit"
    if waiting.counting:
        return "count"
    return "engine" if waiting.out else "home" if waiting.home else "slot"


class Findings:
    """The last counts that a reconciliation put on record, by campaign and run; those of a whole campaign take the place of its runs'."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, tuple[Mapping[str, int], int]]] = {}

    def note(self, campaign: str, run: str, classes: Mapping[str, int], unexplained: int) -> None:
        runs = self._of.setdefault(campaign, {})
        if run:
            runs.pop("", None)
        else:
            runs.clear()
        runs[run] = (classes, unexplained)

    def keep(self, campaigns: Iterable[str]) -> None:
        for gone in self._of.keys() - set(campaigns):
            del self._of[gone]

    def classes(self, campaign: str) -> Counter[str]:
        sums: Counter[str] = Counter()
        for classes, _ in self._of.get(campaign, {}).values():
            for name, rows in classes.items():
                sums[name if name in _CLASSES else OTHER_CLASS] += rows
        return sums

    def unexplained(self, campaign: str) -> int | None:
        found = self._of.get(campaign)
        return None if found is None else sum(unexplained for _, unexplained in found.values())


class Levels:
    """Answers what `metrics` asks for when it is read."""

    def __init__(
        self, metrics: Metrics, settings: Settings, ledger: Ledger, gate: Gate, runs: Runs, engines: Engines, not_ready: Callable[[], Sequence[str]]
    ) -> None:
        self._metrics, self._settings, self._ledger = metrics, settings, ledger
        self._gate, self._runs, self._engines, self._not_ready = gate, runs, engines, not_ready
        self.findings = Findings()
        self._limits: list[tuple[Values, LimitLeft]] = []
        ledger.on_commit(self._committed)
        metrics.begin({name: upstream.models for name, upstream in settings.upstreams.items()})
        self._answer_of_traffic()
        self._answer_of_the_ledger()
        self._answer_of_campaigns()

    def render(self) -> bytes:
        self._metrics.commit_failures.labels().value = self._ledger.failures
        self._limits = list(self._limits_left())
        return self._metrics.render()

    def remember(self, reader: LedgerReader) -> None:
        """What reconciliations put on record before this process began."""
        for event in reader.reconciliations():
            told = cast("dict[str, Any]", event["details"])
            self.findings.note(cast(str, event["campaign"]), cast(str, event.get("run", "")), told["classes"], told["unexplained"])

    def _committed(self, seconds: float, commands: int) -> None:
        self._metrics.commit.observe(seconds)
        self._metrics.committed.inc(commands)

    # Traffic and engines.

    def _answer_of_traffic(self) -> None:
        metrics, gate, settings, engines = self._metrics, self._gate, self._settings, self._engines
        metrics.ready.read = lambda: _one(not self._not_ready() and self._writable() and not self._ledger.clock.doubt)
        metrics.waiting.read = self._waiting
        metrics.waiting_longest.read = lambda: _one(max((view.waited_ms for view in gate.waiting()), default=0) / 1000)
        metrics.queue_limit.read = lambda: _one(settings.bounds.queue_length)
        metrics.slots_busy.read = lambda: [((name,), gate.busy(name)) for name in settings.upstreams]
        metrics.slots_idle.read = lambda: [((name,), max(0, engines.slots(name) - gate.busy(name))) for name in settings.upstreams]
        metrics.upstream_up.read = lambda: [((name,), engines.usable(name)) for name in settings.upstreams]
        metrics.upstream_state.read = self._states
        metrics.upstream_standing.read = self._standings
        metrics.wrong_health_path.read = lambda: [((name,), engines.health(name).wrong_path) for name in settings.upstreams]

    def _waiting(self) -> Rows:
        found = Counter(waiting_reason(view) for view in self._gate.waiting())
        return [((reason,), found[reason]) for reason in REASONS]

    def _states(self) -> Iterator[tuple[Values, float]]:
        for name in self._settings.upstreams:
            now = self._engines.health(name).state
            yield from (((name, state), state is now) for state in State)

    def _standings(self) -> Iterator[tuple[Values, float]]:
        for name in self._settings.upstreams:
            now = self._engines.standing(name)
            yield from (((name, standing), standing is now) for standing in Standing)

    # The ledger.

    def _answer_of_the_ledger(self) -> None:
        metrics, ledger, settings = self._metrics, self._ledger, self._settings
        metrics.writable.read = lambda: _one(self._writable())
        metrics.clock_certain.read = lambda: _one(not ledger.clock.doubt)
        metrics.backlog.read = lambda: _one(ledger.backlog)
        metrics.lag.read = lambda: _one(ledger.lag_s)
        metrics.ledger_bytes.read = lambda: _one(_size(ledger.file))
        metrics.ledger_free.read = lambda: _free(ledger.file)
        metrics.ledger_min_free.read = lambda: _one(settings.ledger.min_free_bytes)

    def _writable(self) -> bool:
        try:
            self._ledger.admissible()
        except LedgerUnavailable:
            return False
        except ClockUncertain:
            pass
        return True

    # Campaigns.

    def _answer_of_campaigns(self) -> None:
        metrics = self._metrics
        metrics.campaigns.read = self._campaigns
        metrics.runs.read = lambda: [((each.campaign,), _open_runs(each)) for each in self._shown()]
        metrics.budget_ceiling.read = lambda: [(labels, found.limit.ceiling) for labels, found in self._limits]
        metrics.budget_settled.read = lambda: [(labels, found.balance.settled) for labels, found in self._limits]
        metrics.budget_reserved.read = lambda: [(labels, found.balance.reserved) for labels, found in self._limits]
        metrics.budget_left.read = lambda: [(labels, found.left) for labels, found in self._limits]
        metrics.findings.read = self._classes
        metrics.unexplained.read = self._unexplained

    def _campaigns(self) -> Rows:
        found = Counter(each.state for each in self._runs.campaigns())
        return [((state,), found[state]) for state in (CampaignStanding.OPEN, CampaignStanding.HALTED)]

    def _shown(self) -> list[CampaignState]:
        return list(islice((each for each in self._runs.campaigns() if each.serves), CAMPAIGNS_MAX))

    def _limits_left(self) -> Iterator[tuple[Values, LimitLeft]]:
        """Each campaign's own; the gateway's stand under no campaign, once. Reckoned once a reading, for four families."""
        for found in self._runs.gateway_limits_left():
            yield _labels("", found.limit.name, found.limit.account), found
        for campaign in self._shown():
            for found in self._runs.campaign_limits_left(campaign):
                yield _labels(campaign.campaign, found.limit.name, found.limit.account), found

    def _classes(self) -> Iterator[tuple[Values, float]]:
        self.findings.keep(each.campaign for each in self._runs.campaigns() if each.serves)
        for each in self._shown():
            yield from (((each.campaign, name), rows) for name, rows in sorted(self.findings.classes(each.campaign).items()))

    def _unexplained(self) -> Iterator[tuple[Values, float]]:
        for each in self._shown():
            if (rows := self.findings.unexplained(each.campaign)) is not None:
                yield (each.campaign,), rows


def _one(value: float) -> Rows:
    return [((), value)]


def _labels(campaign: str, limit: str, account: Account) -> Values:
    return campaign, limit, account.lane, account.quantity, account.window.partition(" ")[0]


def _open_runs(campaign: CampaignState) -> int:
    return sum(run.state is RunStanding.OPEN for run in campaign.runs.values())


def _size(file: Path) -> int:
    """With what SQLite keeps beside it."""
    sizes = 0
    for name in (file.name, f"{file.name}-wal"):
        try:
            sizes += file.with_name(name).stat().st_size
        except OSError:
            pass
    return sizes


def _free(file: Path) -> Rows:
    try:
        found = os.statvfs(file.parent)
    except OSError:
        return ()
    return _one(found.f_bavail * found.f_frsize)
