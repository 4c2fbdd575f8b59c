"""These run by `make dashboards` alone: they need Debian's package `prometheus`, and a minute of load."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.support.skips import skip

collect_ignore_glob = [] if os.environ.get("GATEWAY_DASHBOARDS") else ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def prometheus_installed() -> None:
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            skip("prometheus", f"{program} is not installed; mend: apt-get install prometheus")
