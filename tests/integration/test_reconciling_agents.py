"""Real agents that ran behind this gateway: the ledger that it wrote against the records that they wrote, with nothing unexplained."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gateway.ledger.reading import LedgerReader
from gateway.reconcile.finding import find_records
from gateway.reconcile.reconciling import Reconciliation, reconcile

AGENTS = Path(__file__).parents[1] / "fixtures" / "agents"
TRIALS = sorted(f"{ledger.parent.parent.name}/{ledger.parent.name}" for ledger in AGENTS.glob("*/*/ledger.sqlite"))
WHOLE = {"equal", "side_call", "own_estimate"}
ENDED = {"refused", "gateway_cut"}


def reconciled(trial: str) -> Reconciliation:
    folder = AGENTS / trial
    with LedgerReader(folder / "ledger.sqlite") as reader:
        (run,) = reader.runs()
        return reconcile(reader, find_records(sorted(folder.glob("record*"))), str(run["campaign"]), str(run["run"]))


def test_there_are_trials_of_every_agent() -> None:
    assert len({trial.partition("-")[0].partition("/")[0] for trial in TRIALS}) >= 8


@pytest.mark.parametrize("trial", TRIALS)
def test_nothing_is_unexplained_and_each_ending_is_told(trial: str) -> None:
    done = reconciled(trial)
    assert done.clean, [(each.name, each.why, list(map(str, each.differences))) for each in done.findings]
    found = {each.name.value for each in done.matches}
    scenario = trial.partition("/")[2]
    assert found <= (WHOLE if scenario == "ok" else WHOLE | ENDED)
    assert scenario == "ok" or found & ENDED
    told = Counter(record.source for each in done.matches for record in each.records)
    assert sorted(told.elements()) == sorted(row.source for row in done.rows.records)
    assert sum(bool(each.records) and each.by is not None for each in done.matches) == len(done.rows.records)  # every row found its call
