"""`python -m tests.fuzz.guided bodies --runs 100000`: the same targets with atheris, which keeps what reaches new code and goes on from there.

Half of what it tries are its own changes of bytes, half are ours, which stay JSON. A finding ends it, and its input is left in build/fuzz.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["gateway.dialects", "gateway.metering", "gateway.proxy.body", "gateway.policy.body_rules"]):
    from tests.fuzz import answers, bodies

MODULES = {"answers": answers, "bodies": bodies}
SEEDS = 400
LONGEST = 8_192


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(MODULES))
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    module = MODULES[asked.target]
    found = Path("build/fuzz")
    found.mkdir(parents=True, exist_ok=True)

    def change(data: bytes, longest: int, seed: int) -> bytes:
        rng = Random(seed)
        if rng.random() < 0.5:
            return bytes(atheris.Mutate(data, longest))
        made: bytes = module.make(rng)
        return made[:longest]

    def check(data: bytes) -> None:
        module.check(data)

    with tempfile.TemporaryDirectory() as corpus:
        for number in range(SEEDS):
            (Path(corpus) / str(number)).write_bytes(module.make(Random(f"{asked.seed}/{asked.target}/{number}")))
        options = [f"-runs={asked.runs}", f"-seed={asked.seed}", f"-max_len={LONGEST}", "-timeout=10", "-print_final_stats=1", f"-artifact_prefix={found}/"]
        atheris.Setup([sys.argv[0], *options, corpus], check, custom_mutator=change)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
