"""A session of pytest under the plugin: a skip that is not allowed and a budget that is passed make it fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT
from tests.support.skips import VARIABLE
from tests.support.storeys import FACTOR_VARIABLE

CONFTEST = "from tests.support.storeys import Storeys\n\ndef pytest_configure(config):\n    config.pluginmanager.register(Storeys())\n"
SKIPPED = "from tests.support.skips import skip\n\ndef test_a():\n    skip('no-moon', 'the moon is down')\n\ndef test_b():\n    pass\n"


def session(folder: Path, **environment: str) -> tuple[int, str]:
    """Its exit status and what it printed."""
    (folder / "conftest.py").write_text(CONFTEST)
    place = folder / "tests" / "unit"
    place.mkdir(parents=True)
    (place / "test_it.py").write_text(SKIPPED)
    env = {name: value for name, value in os.environ.items() if name not in (VARIABLE, FACTOR_VARIABLE)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--import-mode=importlib", f"--rootdir={folder}", str(folder)]
    done = subprocess.run(command, cwd=folder, env={**env, "PYTHONPATH": str(ROOT), **environment}, capture_output=True, text=True)
    return done.returncode, done.stdout


@pytest.mark.parametrize(("allowed", "status"), [(None, 0), ("no-moon", 0), ("other, no-moon", 0), ("", 1), ("no-mo", 1)])
def test_a_skip_fails_the_session_unless_its_id_is_allowed(tmp_path: Path, allowed: str | None, status: int) -> None:
    code, printed = session(tmp_path, **({} if allowed is None else {VARIABLE: allowed}))
    assert code == status, printed
    assert "skipped no-moon" in printed and "2 tests" in printed and "1 skipped" in printed


def test_a_storey_over_its_budget_fails_the_session(tmp_path: Path) -> None:
    code, printed = session(tmp_path, **{FACTOR_VARIABLE: "0.000001"})
    assert code == 1 and "FAILED: unit took" in printed
