"""`python -m tests.fuzz.run --inputs 1000000`: so many inputs over both targets, on all processors, from one seed that is printed. Exit status 1: findings.

An input is a function of seed, target and number, so that each can be made again by itself. Each may take a second of the processor's time, no more.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType

TARGETS = {"bodies": 0.6, "answers": 0.4}
"""Which part of all inputs each has."""
SLOWEST_S = 1.0
BATCH = 2_500
KEPT = 5
"""Findings of a batch that are kept: one fault is often found a thousand times."""
FOUND = Path("build/fuzz")


@dataclass(slots=True)
class Result:
    target: str
    words: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    findings: list[tuple[int, str, bytes]] = field(default_factory=list)
    """(number of the input, what was wrong, the input)."""
    faults: int = 0


class TooSlow(Exception):
    """One input took more of the processor than it may."""


def _on_alarm(_signal: int, _frame: FrameType | None) -> None:
    raise TooSlow


@contextmanager
def _bounded() -> Iterator[None]:
    """By the processor's time, which a busy machine does not stretch."""
    signal.setitimer(signal.ITIMER_VIRTUAL, SLOWEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def batch(target: str, seed: int, first: int, number: int) -> Result:
    signal.signal(signal.SIGVTALRM, _on_alarm)
    module = importlib.import_module(f"tests.fuzz.{target}")
    make: Callable[[Random], bytes] = module.make
    check: Callable[[bytes], str] = module.check
    result = Result(target)
    for place in range(first, first + number):
        data = make(Random(f"{seed}/{target}/{place}"))
        began = time.process_time()
        try:
            with _bounded():
                result.words[check(data)] += 1
        except Exception:
            result.faults += 1
            if len(result.findings) < KEPT:
                result.findings.append((place, traceback.format_exc(limit=-4), data))
        result.slowest_s = max(result.slowest_s, time.process_time() - began)
    return result


def run(inputs: int, seed: int, only: str, first: int, jobs: int, seconds: float) -> int:
    began = time.monotonic()
    wanted = {only: inputs} if only else {target: round(inputs * part) for target, part in TARGETS.items()}
    print(f"seed {seed}: {', '.join(f'{number} {target}' for target, number in wanted.items())}, {jobs} at a time", flush=True)
    totals = {target: Result(target) for target in wanted}
    with ProcessPoolExecutor(jobs) as pool:
        parts = [(target, at, min(BATCH, number - at)) for target, number in wanted.items() for at in range(0, number, BATCH)]
        working = [pool.submit(batch, target, seed, first + at, number) for target, at, number in parts]
        for done in as_completed(working):
            _add(totals, done.result())
            if time.monotonic() - began > seconds:
                pool.shutdown(cancel_futures=True)  # what is under way is waited for
                break
    for total in totals.values():
        _tell(total, seed)
    tried = sum(total.words.total() + total.faults for total in totals.values())
    took = time.monotonic() - began
    print(f"{tried} inputs in {took:.0f} s")
    if tried < sum(wanted.values()):
        print(f"FAILED: only {tried} of {sum(wanted.values())} inputs in {seconds:.0f} s: fewer, or --seconds more")
    return int(tried < sum(wanted.values()) or any(total.faults for total in totals.values()))


def _add(totals: dict[str, Result], result: Result) -> None:
    total = totals[result.target]
    total.words += result.words
    total.faults += result.faults
    total.slowest_s = max(total.slowest_s, result.slowest_s)
    total.findings += result.findings[: max(0, KEPT - len(total.findings))]


def _tell(total: Result, seed: int) -> None:
    words = ", ".join(f"{number} {word}" for word, number in sorted(total.words.items()))
    print(f"{total.target}: {words}; {total.faults} findings; slowest {total.slowest_s * 1000:.0f} ms")
    for place, what, data in total.findings:
        FOUND.mkdir(parents=True, exist_ok=True)
        file = FOUND / f"{total.target}-{seed}-{place}"
        file.write_bytes(data)
        print(f"\nFINDING: {file}; again: python -m tests.fuzz.run --seed {seed} --only {total.target} --first {place} --inputs 1\n{what}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(datetime.date.today().strftime("%Y%m%d")), help="default: the date")
    parser.add_argument("--only", choices=sorted(TARGETS), default="")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=480.0, help="longest that it may take")
    asked = parser.parse_args()
    return run(asked.inputs, asked.seed, asked.only, asked.first, asked.jobs, asked.seconds)


if __name__ == "__main__":
    sys.exit(main())
