"""The test aid by which a call's way is cut off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.errors import ConfigurationError
from gateway.proxy import fault_points

ROOT = Path(__file__).parents[2]


def passing(value: str, name: str) -> tuple[int, str]:
    """A process that passes a point five times and tells each."""
    program = f"from gateway.proxy.fault_points import reach\nfor n in range(1, 6):\n    reach({name!r}); print(n, flush=True)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), fault_points.VARIABLE: value}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout.replace("\n", "")


def test_the_process_ends_at_the_numbered_passing_of_its_point() -> None:
    assert passing("settled:3", "settled") == (-signal.SIGKILL, "12")


def test_another_point_is_passed_and_so_is_every_point_where_none_is_named() -> None:
    assert passing("sent:1", "settled") == (0, "12345")
    assert passing("", "settled") == (0, "12345")


@pytest.mark.parametrize("value", ["", "settled", "setled:1", "settled:0", "settled:-1", "settled:x", ":1"])
def test_what_names_no_point_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError):
        fault_points.parse(value)


def test_nothing_is_called_after_a_write_while_it_is_off() -> None:
    assert fault_points.reach_once_written("sent") is None
