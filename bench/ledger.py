"""What a call (reserve and settle) costs in the ledger: CPU of the whole process, and time with its syncs, alone and in batches.

python bench/ledger.py [--accounts 12] [--calls 4000] [--folder DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from gateway.accounting.commands import OpenCampaign, OpenRun, Reserve, Settle
from gateway.accounting.limit import Account, Scope
from gateway.accounting.quantity import Amounts, Quantity
from gateway.accounting.usage import Outcome, Source, Usage
from gateway.ledger.ledger import Ledger

QUANTITIES = (Quantity.REQUESTS, Quantity.INPUT_TOKENS, Quantity.OUTPUT_TOKENS, Quantity.CONCURRENT)
PLACES = ((Scope.RUN, "bench/r", ""), (Scope.CAMPAIGN, "bench", ""), (Scope.GATEWAY, "", "day 2026-10-03 UTC"))
ACCOUNTS = tuple(Account(scope=scope, subject=subject, quantity=quantity, window=window) for scope, subject, window in PLACES for quantity in QUANTITIES)
DETAILS = {
    "settings_sent": {"max_tokens": "1024", "temperature": "0.7", "stream": "true"},
    "fields": [{"name": "messages", "bytes": 18231, "sha256": "ab" * 32}],
    "tools": {"names": ["read", "write", "bash"], "sha256": "cd" * 32},
    "body": {"sha256": "ef" * 32, "forwarded": "01" * 32, "canonical": "23" * 32},
}


def reserve(name: str, at_ms: int, accounts: int) -> Reserve:
    return Reserve(
        call_id=name,
        at_ms=at_ms,
        campaign="bench",
        run="r",
        lane="foreground",
        key_id="key-1",
        model="qwen",
        upstream="local",
        dialect="openai.chat",
        stream=True,
        accounts=ACCOUNTS[:accounts],
        amounts=Amounts(requests=1, input_tokens=4000, output_tokens=1024, concurrent=1),
        prompt_source="bound",
        ceiling=1024,
        ceiling_from="asked",
        details=DETAILS,
    )


def settle(name: str, at_ms: int) -> Settle:
    return Settle(
        call_id=name,
        at_ms=at_ms,
        outcome=Outcome.COMPLETED,
        source=Source.REPORTED,
        usage=Usage(input_tokens=3800, output_tokens=210, cached_tokens=3000),
        charge=Amounts(requests=1, input_tokens=3800, output_tokens=210),
        details={"status": 200, "finish_reason": "stop", "response_id": "chatcmpl-123456789", "first_byte_ms": at_ms, "terminal_ms": at_ms},
    )


async def calls(ledger: Ledger, worker: int, count: int, accounts: int) -> None:
    for place in range(count):
        name = f"call-{worker:04d}-{place:08d}"
        await ledger.post(reserve(name, ledger.now_ms(), accounts))
        await ledger.post(settle(name, ledger.now_ms()))


async def measure(folder: Path, at_once: int, total: int, accounts: int) -> None:
    ledger = Ledger.open(folder / f"bench-{at_once}.db")
    commits: list[float] = []
    await ledger.post(OpenCampaign(campaign="bench", at_ms=ledger.now_ms(), policy_name="p", policy="{}", policy_hash="0" * 64))
    await ledger.post(OpenRun(campaign="bench", run="r", at_ms=ledger.now_ms()))
    ledger.on_commit(lambda seconds, commands: commits.append(seconds))
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(calls(ledger, worker, total // at_once, accounts) for worker in range(at_once)))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    await ledger.close()
    commits.sort()
    print(
        f"{at_once:4d} at once: {cpu / total * 1e6:6.0f} us CPU a call, {wall / total * 1e6:6.0f} us with syncs, "
        f"{len(commits)} commits, median {commits[len(commits) // 2] * 1e6:.0f} us"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--accounts", type=int, default=12)
    options.add_argument("--calls", type=int, default=4000)
    options.add_argument("--folder", type=Path)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        for at_once in (1, 8, 32, 64):
            asyncio.run(measure(Path(folder), at_once, chosen.calls, chosen.accounts))


if __name__ == "__main__":
    main()
