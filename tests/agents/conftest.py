"""These run by `make agents` alone: they need root, packages from registries, and minutes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import namespaces, table
from tests.agents.installing import install
from tests.agents.namespaces import Namespaces
from tests.support.skips import skip

collect_ignore_glob = [] if os.environ.get("GATEWAY_AGENTS") else ["test_*.py"]
RESULTS = Path(os.environ.get("GATEWAY_AGENTS_RESULTS", "build/agents"))


@pytest.fixture(scope="session")
def isolation() -> None:
    if why := namespaces.missing():
        skip("network-namespaces", why)


@pytest.fixture(scope="session")
def programs(isolation: None) -> Path:
    """Where the agents are installed."""
    return install()


@pytest.fixture
def spaces(isolation: None) -> Iterator[Namespaces]:
    with Namespaces() as made:
        yield made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if os.environ.get("GATEWAY_AGENTS") and RESULTS.exists():
        terminalreporter.section("agents")
        table.main(RESULTS, renew=bool(os.environ.get("GATEWAY_AGENTS_KEEP")))
