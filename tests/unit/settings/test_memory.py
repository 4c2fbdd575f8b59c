"""What one body gave back serves the next one. In a process of its own: an allocator that has learnt stays so."""

from __future__ import annotations

import subprocess
import sys

ROUNDS, BODIES, PAGES = 50, 30, 15
PROGRAM = f"""
import resource, sys
from gateway.settings.memory import keep_memory
if sys.argv[1] == "kept":
    keep_memory()
def bodies():
    held = [b"x" * {PAGES * 4_096} for _ in range({BODIES})]
bodies()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    bodies()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages_mapped(how: str, **environment: str) -> int:
    command = [sys.executable, "-c", PROGRAM, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path), **environment}).stdout)


def test_a_body_gets_the_memory_of_the_one_before_it() -> None:
    assert pages_mapped("kept") < BODIES * PAGES  # less than one round's


def test_who_runs_it_may_have_said_otherwise() -> None:
    assert pages_mapped("kept", MALLOC_TRIM_THRESHOLD_="131072") > ROUNDS * BODIES * PAGES // 5
