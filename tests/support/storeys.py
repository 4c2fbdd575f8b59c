"""The session's own accounts: what each storey took against its budget, what was skipped, how many tests ran. A budget passed fails the session."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest

from tests.support import skips

BUDGETS_S = {"unit": 420.0, "contract": 120.0, "integration": 420.0, "acceptance": 1_700.0}
"""Seconds of all tests of a storey, added up; they run four at a time on two cores, so that each takes longer than it would alone.
Acceptance took 1,280 and 1,390 s on one machine whose speed wanders."""
FACTOR_VARIABLE = "GATEWAY_TIME_FACTOR"
"""Multiplies the budgets on a slow or busy machine."""


def storey_of(nodeid: str) -> str:
    parts = nodeid.split("::")[0].split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "tests" else "other"


@dataclass(slots=True)
class Accounts:
    """What is known of a session; pure, so that it can be tested by itself."""

    factor: float = 1.0
    allowed: frozenset[str] | None = None
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    tests: Counter[str] = field(default_factory=Counter)
    skipped: list[tuple[str, str, str]] = field(default_factory=list)
    """(id, test, reason)."""

    def saw(self, nodeid: str, when: str, duration_s: float) -> None:
        storey = storey_of(nodeid)
        self.seconds[storey] += duration_s
        if when == "setup":
            self.tests[storey] += 1

    def saw_skip(self, nodeid: str, reason: str) -> None:
        self.skipped.append((skips.id_of(reason), nodeid, reason))

    def complaints(self) -> list[str]:
        """Why the session fails, apart from its tests."""
        late = [
            f"{storey} took {taken:.1f} s of {budget * self.factor:.0f} s"
            for storey, budget in BUDGETS_S.items()
            if (taken := self.seconds.get(storey, 0.0)) > budget * self.factor
        ]
        if self.allowed is None:
            return late
        return late + [f"{test} was skipped as {id}, which {skips.VARIABLE} does not allow" for id, test, _ in self.skipped if id not in self.allowed]

    def lines(self) -> list[str]:
        rows = [f"{storey:<12}{count:>6} tests{self.seconds[storey]:>8.1f} s{self._of(storey)}" for storey, count in sorted(self.tests.items())]
        total = f"{'total':<12}{sum(self.tests.values()):>6} tests{sum(self.seconds.values()):>8.1f} s, {len(self.skipped)} skipped"
        return [*rows, total, *(f"skipped {id}: {test}: {reason}" for id, test, reason in self.skipped)]

    def _of(self, storey: str) -> str:
        return f" of {BUDGETS_S[storey] * self.factor:.0f} s" if storey in BUDGETS_S else ""


class Storeys:
    """The plugin: feeds the accounts and prints them."""

    def __init__(self) -> None:
        self.accounts = Accounts(factor=float(os.environ.get(FACTOR_VARIABLE, "1")), allowed=skips.allowed())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.accounts.saw(report.nodeid, report.when or "", report.duration)
        if report.skipped:
            self.accounts.saw_skip(report.nodeid, str(getattr(report, "wasxfail", "")) or _reason(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.accounts.saw_skip(report.nodeid, _reason(report))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.accounts.complaints() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("storeys")
        for line in self.accounts.lines():
            terminalreporter.write_line(line)
        for complaint in self.accounts.complaints():
            terminalreporter.write_line(f"FAILED: {complaint}", red=True)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    longrepr = report.longrepr
    return str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
