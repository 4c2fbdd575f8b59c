"""An agent on a real llama.cpp with a small random model. It need not finish: its own record, the ledger and the engine's counters must agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.demo.engine import tiny_engine
from gateway.ledger.reading import LedgerReader
from gateway.reconcile.finding import find_records
from gateway.reconcile.reconciling import reconcile
from tests.agents import namespaces
from tests.agents.namespaces import Namespaces
from tests.agents.setups.pi import SETUPS
from tests.agents.trial import open_run, run_agent
from tests.support.gateway_process import GatewayProcess

CONTEXT_TOKENS = 49_152
POLICY: dict[str, Any] = {
    "apis": ["openai.chat", "openai.responses", "anthropic.messages"],
    "models": {"mock": {"context_tokens": CONTEXT_TOKENS}},
    "call": {"output_tokens": 100},
    "run": {"requests": 4},
    "body": {"force": {"temperature": 0}},
}

LISTENER: dict[str, Any] = {"data": {"listen": f"{namespaces.GATEWAY}:{namespaces.PORT}"}}


@pytest.mark.timeout(400)
def test_an_agents_record_the_ledger_and_the_engines_counters_agree(programs: Path, tmp_path: Path) -> None:
    sums = (0, 0)
    with Namespaces() as spaces, spaces.inside(), tiny_engine(tmp_path / "model", alias="mock", slots=1, context_tokens=CONTEXT_TOKENS) as engine:
        for setup in SETUPS:
            with GatewayProcess(tmp_path / setup.name / "gateway", engine.address, policy=POLICY, settings=LISTENER, slots=1) as gateway:
                key = open_run(gateway)
                home = tmp_path / setup.name / "home"
                ran, _, timed_out = run_agent(setup, spaces, home, programs, key)
                gateway.stop()
            assert not timed_out and ran.exit == 0, ran.stderr
            with LedgerReader(gateway.ledger) as ledger:
                calls = ledger.calls()
                done = reconcile(ledger, find_records([home / ".pi"]), "agents", "r1")
            assert calls and {row["dialect"] for row in calls} == {setup.dialect}
            assert {row["source"] for row in calls} == {"reported"}, list(map(dict, calls))
            assert done.clean and [each.name for each in done.matches] == ["equal"] * len(calls), [(each.name, each.by) for each in done.matches]
            sums = (sums[0] + sum(_uncached(row) for row in calls), sums[1] + sum(int(str(row["output_tokens"])) for row in calls))
        counters = engine.counters()
    assert sums == (counters.prompt_tokens, counters.output_tokens)


def _uncached(row: dict[str, Any]) -> int:
    return int(row["input_tokens"]) - int(row["cached_tokens"] or 0)
