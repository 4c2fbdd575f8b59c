"""Processes under measurement: started on one CPU, weighed through /proc, ended with all their children."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
STOP_S = 15


def placed(command: Sequence[str], cpu: int | None) -> list[str]:
    """On one CPU: figures are for one core, and nothing moves meanwhile."""
    return [*(["taskset", "-c", str(cpu)] if cpu is not None else []), *command]


def started(command: Sequence[str], *, cpu: int | None, log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    pinned = placed(command, cpu)
    with log.open("wb") as out:
        return subprocess.Popen(pinned, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})}, start_new_session=True)


def put_ahead(pids: Iterable[int]) -> None:
    """Of everything else on the machine, with all that they start from now on. Raises PermissionError."""
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(task.name), os.SCHED_RR, os.sched_param(1))


def stopped(process: subprocess.Popen[bytes] | None) -> None:
    if process is None:
        return
    children = family(process.pid)
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pid in children[1:]:  # what its parent left behind
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def family(pid: int) -> list[int]:
    """The process, its children and theirs."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        one = left.pop()
        found.append(one)
        left += children.get(one, [])
    return found


def cpu_s(pids: Iterable[int]) -> float:
    """CPU that they took so far, in user and kernel."""
    return sum((int(fields[11]) + int(fields[12])) / TICKS_PER_S for fields in map(_stat, pids) if fields)


def rss_mb(pids: Iterable[int]) -> float:
    total_kb = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        total_kb += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return total_kb / 1024


def machine_busy_s() -> float:
    """CPU that all CPUs of the machine worked so far."""
    first = Path("/proc/stat").read_text().partition("\n")[0]
    user, nice, system, _idle, _waiting, interrupts, soft, stolen = map(int, first.split()[1:9])
    return (user + nice + system + interrupts + soft + stolen) / TICKS_PER_S


def wait_for_quiet(share: float, seconds: float) -> None:
    """Until the machine works less than this share, or the time is over. What is measured must be idle now."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before, begin = machine_busy_s(), time.monotonic()
        time.sleep(0.25)
        if (machine_busy_s() - before) / (time.monotonic() - begin) / (os.cpu_count() or 1) < share:
            return


def _stat(pid: int) -> list[str]:
    """From its state on; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
