"""What a pass over the waiting place costs: 300 runs wait, and a call ends.

python bench/waiting.py [--runs 300] [--rounds 60]

Microseconds of this process's CPU for a pass, and how many heads of queues were looked at in it. Every waiting run has twelve limits; time, balances and
engines are a simulated world's, so nothing else is measured. `slots` are scarce, or the campaign's `tokens`: then every run has a slot to go to, and no room.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gateway.accounting.balances import postings
from gateway.accounting.quantity import Amounts
from tests.unit.upstream.world import World

AMPLE = 10**9
CEILINGS = {
    "run.requests": 1_000,
    "run.output_tokens": 10**6,
    "run.input_tokens": 10**6,
    "run.total_tokens": 10**7,
    "run.concurrent": 4,
    **{f"campaign.{name}": AMPLE for name in ("requests", "input_tokens", "total_tokens", "day.output_tokens")},
    "gateway.concurrent": 1_000,
    "gateway.output_tokens": AMPLE,
}
AT_WORK = 8
"""Calls that have a slot, or room."""
ASKED = 100
"""Output tokens that each call asks for."""


def measured(scarce: str, pools: Sequence[tuple[str, ...]], runs: int, rounds: int) -> tuple[list[float], float]:
    tokens = scarce == "tokens"
    engines = sorted({engine for pool in pools for engine in pool})
    room = AT_WORK * ASKED + ASKED // 2
    world = World({**CEILINGS, "campaign.output_tokens": room if tokens else AMPLE}, {name: (1_000 if tokens else AT_WORK) // len(engines) for name in engines})
    for number in range(runs + AT_WORK):
        world.call(f"{number}", run=f"r{number}", engine=pools[number % len(pools)], asked=ASKED, over="refuse")
    world.time.tick()
    assert len(world.waiting()) == runs, len(world.waiting())
    taken, looks = [], 0
    counts = world.turns.counts
    first_passes = counts.passes
    for _ in range(rounds):
        name, sent = next(iter(world.running.items()))
        del world.running[name]
        world.balances.apply(postings(sent.accounts, release=sent.amounts, charge=Amounts(requests=1)))
        gc.disable()
        passes, seen, began = counts.passes, counts.looks, time.process_time()
        world.turns.free(sent.admission.upstream)
        world.time.tick()
        spent = time.process_time() - began
        gc.enable()
        taken.append(spent * 1e6 / (counts.passes - passes))
        looks += counts.looks - seen
        world.call(f"again {name}", run=sent.ticket.run, engine=sent.ticket.engines, asked=ASKED, over="refuse")
        world.time.tick()
    return sorted(taken), looks / max(1, counts.passes - first_passes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=60)
    asked = parser.parse_args()
    pools: dict[str, list[tuple[str, ...]]] = {"one engine": [("a",)], "two engines": [("a", "b")], "overlapping": [("a",), ("b",), ("a", "b")]}
    print(f"{asked.runs} runs wait\n\n| scarce | engines | us a pass, least | median | p90 | heads looked at |\n|---|---|---:|---:|---:|---:|")
    for scarce in ("slots", "tokens"):
        for name, shared in pools.items():
            taken, looks = measured(scarce, shared, asked.runs, asked.rounds)
            print(f"| {scarce} | {name} | {taken[0]:.0f} | {statistics.median(taken):.0f} | {taken[int(len(taken) * 0.9)]:.0f} | {looks:.0f} |")


if __name__ == "__main__":
    main()
