"""Measures this gateway against the bare engine, a bare proxy and its peers, and prints one table.

    python bench/run.py [--quick] [--targets direct,nginx,…] [--sets calls,streams,open] [--rounds 3] [--seconds 4]

The rule: every round visits every target with the same load before it goes on to the next load, so that what drifts on a shared machine
hits all alike. Figures of two runs of this program are not to be compared, ratios within one are.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import json
import os
import platform
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

from measuring import Measurement, build, measure, wait_for_no_streams
from processes import family, put_ahead, rss_mb, started, stopped, wait_for_quiet
from scenarios import IDLE, SETS, Scenario
from table import Results, problems, ratios, table, verdicts
from targets import HERE, TARGETS, NotHere, Place, Target, free_port, wait_ready

ALONE = "GATEWAY_BENCH_ALONE"
DISTURBED = 0.15
"""More than this share of the CPUs taken by others: measured again."""
IN_MEMORY = ("tmpfs", "ramfs")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default=",".join(TARGETS), help="of " + ", ".join(TARGETS) + "; what is not installed is left out")
    parser.add_argument("--sets", default=",".join(SETS), help="of " + ", ".join(SETS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4, help="how long a load goes on")
    parser.add_argument("--tries", type=int, default=3, help="how often a load is repeated while others disturb it")
    parser.add_argument("--wait", type=float, default=10, help="how many seconds a quiet moment is waited for, before each load")
    parser.add_argument("--quick", action="store_true", help="one short round without the open streams: a minute or two, for a first look")
    parser.add_argument("--ahead", action="store_true", help="as root: what is measured runs before all else on this machine, for one that is never quiet")
    parser.add_argument("--folder", type=Path, default=HERE / "out", help="for ledgers and logs; must be on a disk")
    parser.add_argument("--json", type=Path, help="also write every measurement here")
    chosen = parser.parse_args()
    if chosen.ahead:
        chosen.tries, chosen.wait = 1, 0
    if chosen.quick:
        chosen.rounds, chosen.seconds, chosen.tries, chosen.wait = 1, 2, 1, 2
        chosen.sets = ",".join(name for name in chosen.sets.split(",") if name != "open")
    unknown = [name for name in chosen.targets.split(",") if name not in TARGETS] + [name for name in chosen.sets.split(",") if name not in SETS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}")
    return chosen


def go_alone() -> None:
    """In a network of its own, where root may make one: no target reaches anything else, and nothing else reaches a target."""
    if os.environ.get(ALONE) or os.geteuid() or shutil.which("unshare") is None:
        return
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0:
        os.execvpe("unshare", ["unshare", "--net", sys.executable, *sys.argv], {**os.environ, ALONE: "1"})


def raise_loopback() -> None:
    with socket.socket() as any_socket:
        request = struct.pack("16sh14x", b"lo", 0x1 | 0x40)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(any_socket, 0x8914, request)  # SIOCSIFFLAGS


def filesystem(folder: Path) -> str:
    found = subprocess.run(["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def start_targets(names: list[str], place: Place) -> list[Target]:
    """Those that are installed. What does not start ends the run."""
    targets: list[Target] = []
    try:
        for name in names:
            try:
                target = TARGETS[name](place)
            except NotHere as missing:
                print(f"left out, not installed: {missing}", file=sys.stderr)
                continue
            targets.append(target)
            wait_ready(target)
            print(f"{name} is up", file=sys.stderr)
    except BaseException:
        for target in targets:
            stopped(target.process)
        raise
    return targets


def weigh_idle(targets: list[Target]) -> list[Measurement]:
    return [
        Measurement(target=target.name, scenario="no open streams", others=0, values={"rss_mb": rss_mb(family(target.process.pid))})
        for target in targets
        if target.process
    ]


def measure_all(targets: list[Target], scenarios: list[Scenario], place: Place, engine_pid: int, chosen: argparse.Namespace) -> list[Measurement]:
    rows: list[Measurement] = []
    for number in range(chosen.rounds):
        for scenario in scenarios:
            if scenario.once and number:
                continue
            first = number % len(targets)
            for target in targets[first:] + targets[:first]:
                for _ in range(chosen.tries):
                    wait_for_no_streams(place.engine_port)
                    wait_for_quiet(DISTURBED, chosen.wait)
                    row = replace(measure(target, scenario, place, engine_pid, chosen.seconds), round=number)
                    rows.append(row)
                    shown = " ".join(f"{key}={value:.4g}" for key, value in row.values.items())
                    print(f"{number + 1}/{chosen.rounds} {scenario.name:28} {target.name:17} others={row.others:.2f} {shown} {row.problem}", file=sys.stderr)
                    if row.others <= DISTURBED:
                        break
    return rows


def main() -> None:
    chosen = options()
    go_alone()
    if os.environ.get(ALONE):
        raise_loopback()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    chosen.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=chosen.folder)).absolute()
    disk = filesystem(folder)
    if disk in IN_MEMORY:
        sys.exit(f"problem: {folder} is in memory ({disk}), where a sync costs nothing. mend: name a folder on a disk with --folder")
    build(folder)
    pinned = (os.cpu_count() or 1) > 1
    place = Place(folder=folder, engine_port=free_port(), pinned=pinned)
    engine = started([str(folder / "engine"), str(place.engine_port)], cpu=0 if pinned else None, log=folder / "engine.log")
    targets: list[Target] = []
    try:
        time.sleep(0.2)
        targets = start_targets(chosen.targets.split(","), place)
        scenarios = [scenario for name in chosen.sets.split(",") for scenario in SETS[name]]
        idle = weigh_idle(targets)
        if chosen.ahead:
            put_ahead([os.getpid(), engine.pid, *(pid for target in targets if target.process for pid in family(target.process.pid))])
        rows = idle + measure_all(targets, scenarios, place, engine.pid, chosen)
    finally:
        for target in targets:
            stopped(target.process)
        stopped(engine)
        for undo in place.undo:
            undo()
    names = [target.name for target in targets]
    shown = [Scenario(name="no open streams", callers=0, size="", model="", figures=(IDLE,)), *scenarios]
    results = Results(rows, shown, names, 1.0 if chosen.ahead else DISTURBED)
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    where = ("a network of its own" if os.environ.get(ALONE) else "loopback") + (", ahead of whatever else ran" if chosen.ahead else "")
    machine = f"{datetime.date.today()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    print(f"\n{machine}, ledger on {disk}, {where}, {chosen.rounds} rounds of {chosen.seconds} s\n")
    for part in (table(results), "Ratios", ratios(results), "Wanted", verdicts(results), problems(results)):
        print(part + "\n" if part else "", end="\n" if part else "")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
