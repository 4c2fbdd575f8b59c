"""Ten thousand calls against ten thousand rows: every one matched, in seconds, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.accounting.commands import Command, OpenRun, Reserve, Settle
from gateway.accounting.quantity import Amounts
from gateway.accounting.usage import Outcome, Source, Usage
from gateway.ledger.reading import LedgerReader
from gateway.reconcile.finding import find_records
from gateway.reconcile.reconciling import Reconciliation, document, reconcile
from tests.support.dispatch_ledger import open_campaign, write_ledger

RUNS, CALLS = 20, 500
START_MS = 1_796_000_000_000
SECONDS_MAX = 20
"""Of CPU. It takes two or three."""
MEASURED = """
import resource, subprocess, sys
code = subprocess.run([sys.executable, *sys.argv[1:]]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
"""A small process between: a child counts as its own peak what its parent held when it forked."""
PEAK_KIB_MAX = 256 * 1024


def commands() -> Iterator[Command]:
    for run in range(RUNS):
        yield OpenRun(campaign="c", run=f"r{run}", at_ms=START_MS - 500)
    for number in range(RUNS * CALLS):
        run, call_id, at_ms = f"r{number % RUNS}", f"call-{number:028x}", START_MS + number * 1_000
        output = 10 + number % 97
        yield Reserve(
            call_id=call_id,
            at_ms=at_ms,
            campaign="c",
            run=run,
            lane="foreground",
            key_id="key-1",
            model="m",
            upstream="u",
            dialect="openai.chat",
            stream=True,
            accounts=(),
            amounts=Amounts(requests=1, input_tokens=2_000, output_tokens=200, concurrent=1),
            prompt_source="bound",
            ceiling=200,
            ceiling_from="asked",
            details={"tool_count": 4, "session": {"x-session-id": f"session-of-{run}"}, "fields": {"messages": {"bytes": 1, "sha256": f"{number:064x}"}}},
        )
        yield Settle(
            call_id=call_id,
            at_ms=at_ms + 700,
            outcome=Outcome.COMPLETED,
            source=Source.REPORTED,
            usage=Usage(input_tokens=1_000, output_tokens=output),
            charge=Amounts(requests=1, input_tokens=1_000, output_tokens=output),
            details={"status": 200, "response_id": f"chatcmpl-{number:032x}", "model_reported": "m"},
        )


def lines(folder: Path) -> None:
    """A third of the runs keep the answers' ids, a third the session's only, a third nothing."""
    for run in range(RUNS):
        with (folder / f"driver-{run * 7 % RUNS}.jsonl").open("w") as file:
            for order in range(CALLS):
                number = order * RUNS + run
                row: dict[str, object] = {
                    "form": "gateway-dispatch-1",
                    "driver": "d",
                    "session": f"s{run}",
                    "begun_ms": START_MS + number * 1_000,
                    "ended_ms": START_MS + number * 1_000 + 710,
                    "model": "m",
                    "usage": {"input_tokens": 1_000, "output_tokens": 10 + number % 97},
                }
                if run % 3 == 0:
                    row["response_id"] = f"chatcmpl-{number:032x}"
                elif run % 3 == 1:
                    row["session_ids"] = [f"session-of-r{run}"]
                file.write(json.dumps(row) + "\n")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("many")
    records = folder / "records"
    records.mkdir()
    lines(records)
    return write_ledger(folder / "ledger.db", [open_campaign("c", START_MS - 1_000), *commands()]), records


def reconciled(many: tuple[Path, Path], run: str = "") -> Reconciliation:
    ledger, records = many
    with LedgerReader(ledger) as reader:
        return reconcile(reader, find_records([records]), "c", run)


def test_ten_thousand_calls_are_matched_in_seconds(many: tuple[Path, Path]) -> None:
    begun = time.process_time()
    done = reconciled(many)
    took_s = time.process_time() - begun
    told = document(done)
    print(f"\n10,000 calls: {took_s:.1f} s of CPU")
    assert (told["calls"], told["rows"], told["unexplained"]) == (RUNS * CALLS, RUNS * CALLS, 0)
    assert told["classes"] == {"equal": {"count": RUNS * CALLS, "explained": True}}
    assert told["matched_by"] == {"response_id": 7 * CALLS, "usage_and_order": 13 * CALLS}
    assert [each["runs"] for each in told["sessions"]] == [{f"r{each['session'][1:]}": CALLS} for each in told["sessions"]]  # type: ignore[attr-defined]
    assert took_s < SECONDS_MAX


def test_one_run_among_them_has_its_own_rows_and_the_others_are_other_sessions(many: tuple[Path, Path]) -> None:
    done = reconciled(many, "r0")
    counts = {name: of["count"] for name, of in document(done)["classes"].items()}  # type: ignore[attr-defined]
    assert counts["equal"] == CALLS
    assert done.clean and sum(counts.values()) == RUNS * CALLS


def test_the_command_does_it_in_bounded_memory_and_writes_a_page(many: tuple[Path, Path], tmp_path: Path) -> None:
    ledger, records = many
    page = tmp_path / "report.html"
    command = ["-m", "gateway", "reconcile", "--campaign", "c", "--records", str(records), "--ledger", str(ledger), "--html", str(page)]
    done = subprocess.run([sys.executable, "-c", MEASURED, *command], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    cpu_s, peak_kib = done.stderr.split()[-2:]
    print(f"\nthe command: {float(cpu_s):.1f} s of CPU, {int(peak_kib) // 1024} MiB, a page of {page.stat().st_size / 2**20:.1f} MiB")
    assert done.returncode == 0, done
    assert "10000 rows are not listed" in done.stdout and done.stdout.endswith("Nothing is unexplained.\n")
    assert int(peak_kib) < PEAK_KIB_MAX
