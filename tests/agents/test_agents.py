"""Real agents against the scripted engine, through the gateway: each finishes its task, stops at its cap, and cannot take a cut for an end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.conftest import RESULTS
from tests.agents.keeping import keep
from tests.agents.midst import is_amid
from tests.agents.scenarios import CAP, OK, scenarios
from tests.agents.setups import SETUPS
from tests.agents.table import Result
from tests.agents.trial import Trial, run

ALL = [(setup, scenario) for setup in SETUPS for scenario in scenarios(setup)]
CUT = "deadline_cut"


@pytest.fixture(params=ALL, ids=[f"{setup.name}-{scenario.name}" for setup, scenario in ALL])
def trial(request: pytest.FixtureRequest, tmp_path: Path, programs: Path) -> Iterator[Trial]:
    setup, scenario = request.param
    made = run(setup, scenario, tmp_path, programs)
    Result.of(made).store(RESULTS)
    if os.environ.get("GATEWAY_AGENTS_KEEP"):
        keep(made)
    yield made
    shutil.rmtree(made.ledger.parent)


@pytest.mark.timeout(600)
def test_an_agent_and_the_gateway(trial: Trial) -> None:
    assert not trial.timed_out, trial.told()
    assert not trial.unequal, (trial.unequal, trial.told())
    if trial.scenario is OK:
        finishes(trial)
    elif trial.scenario is CAP:
        stops(trial)
    else:
        knows_of_its_cut(trial)


def finishes(trial: Trial) -> None:
    setup = trial.setup
    assert trial.wrote and trial.ran.exit == 0 and trial.ending.normal, trial.told()
    assert [row["outcome"] for row in trial.calls if row["model"] == "mock"] == ["completed"] * setup.calls, trial.told()
    assert all(one.status == 200 for one in trial.heard), trial.told()
    assert {row["dialect"] for row in trial.calls} == {setup.dialect}
    assert trial.setup.records(trial.ran), "it left no record"
    totals = trial.receipt["totals"]
    sums = [sum(int(one[name]) for one in trial.engine) for name in ("prompt_tokens", "output_tokens")]
    assert [totals["usage"][name]["sum"] for name in ("input_tokens", "output_tokens")] == sums, totals


def stops(trial: Trial) -> None:
    sent = [row for row in trial.calls if row["model"] == "mock"]
    assert len(sent) == 1, trial.told()
    assert 1 <= trial.refused <= trial.setup.refused, trial.told()
    assert trial.refused == sum(one.status >= 400 for one in trial.heard), trial.told()
    assert {row["limit_name"] for row in trial.refusals} == {'run.model."mock".requests'}, trial.refusals


def knows_of_its_cut(trial: Trial) -> None:
    cut = [row for row in trial.calls if row["outcome"] == CUT]
    assert len(cut) == 1, trial.told()
    assert cut[0] is trial.calls[-1]
    assert not trial.setup.streams or is_amid(trial.scenario.name, trial.delivered), (trial.delivered, trial.told())
    if trial.ending.normal:
        assert trial.scenario.name in trial.setup.known_normal, f"its record reads as a normal end: {trial.told()}"


def test_every_setup_is_tried_in_every_scenario_that_its_format_has() -> None:
    assert {(setup.name, scenario.name) for setup, scenario in ALL} >= {
        (setup.name, name) for setup in SETUPS for name in ("ok", "cap") if name in (setup.scenarios or (name,))
    }
