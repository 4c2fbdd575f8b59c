"""A campaign on a real llama.cpp from its plan to its pack: driver's record, ledger and the engine's own counters agree, and a stranger can check it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from gateway.client import DispatchWriter
from gateway.demo.engine import RealEngine
from tests.support.gateway_process import GatewayProcess
from tests.support.sdk import openai_client

CALLS = 4
PLAN = "run,task,repeat\na1,task-1,1\na2,task-2,1\nnever,task-3,1\n"
POLICY: Any = {
    "models": {"real": {"default_output_tokens": 12, "price_currency": "EUR", "price_input": "0.25", "price_output": "1"}},
    "run": {"requests": CALLS},
}


def without_network() -> list[str]:
    """A prefix that takes the network away, where this user may; the check imports nothing that could use one in any case."""
    prefix = ["unshare", "--map-root-user", "--net"]
    works = shutil.which("unshare") and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    return prefix if works else []


def metrics(engine: RealEngine, path: Path) -> Path:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{engine.address}/metrics", timeout=30) as answer:
        path.write_bytes(answer.read())
    return path


def typed(gateway: GatewayProcess, *words: object, expected: int = 0) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "gateway", *map(str, words), "--json"], capture_output=True, text=True, timeout=120, cwd=gateway.folder)
    assert done.returncode == expected, done
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def driven(gateway: GatewayProcess, key: str, record: Path, session: str) -> None:
    """What a driver does: asks until it is refused, and notes each answer and the refusal."""
    client = openai_client(gateway.address, key)
    with DispatchWriter(record, "story", session=session) as writer:
        for number in range(CALLS + 1):
            asked: Any = {"model": "real", "messages": [{"role": "user", "content": f"{session}: question {number}"}], "max_tokens": 12}
            raw = client.chat.completions.with_raw_response
            try:
                answer = raw.create(**asked)
            except Exception as refused:
                response: Any = getattr(refused, "response", None)
                assert number == CALLS and response is not None, refused
                writer.refusal(response.status_code, headers=response.headers)
                return
            writer.answer(json.loads(answer.text), headers=answer.headers)
    raise AssertionError("nothing was refused")


def test_three_witnesses_agree_and_the_pack_is_checked_on_a_bare_python(tiny: RealEngine, tmp_path: Path) -> None:
    (tmp_path / "plan.csv").write_text(PLAN)
    (tmp_path / "task-1.json").write_text("{}")
    records = tmp_path / "records"
    records.mkdir()
    with GatewayProcess(tmp_path, tiny.address, policy=POLICY, models={"real": tiny.spec.alias, "mock": tiny.spec.alias}, slots=tiny.spec.slots) as gateway:
        typed(gateway, "campaign", "open", "story", "--policy", "test", "--plan", tmp_path / "plan.csv", "--config", gateway.config)
        before = metrics(tiny, tmp_path / "before.txt")
        for run, task in (("a1", "task-1"), ("a2", "task-2")):
            opening = ("run", "open", f"story/{run}", "--task", task, "--repeat", 1, "--pin", tmp_path / "task-1.json", "--config", gateway.config)
            driven(gateway, typed(gateway, *opening)["keys"]["foreground"], records / f"{run}.jsonl", run)
            typed(gateway, "run", "close", f"story/{run}", "--exit", 0, "--outcome", "functional=true", "--config", gateway.config)
        after = metrics(tiny, tmp_path / "after.txt")
        receipt = typed(gateway, "campaign", "close", "story", "--config", gateway.config)["receipt"]
        assert (receipt["planned_runs"], receipt["opened_runs"], receipt["missing_runs"]) == (3, 2, 1)

        reading = ("--ledger", gateway.ledger)
        held = typed(gateway, "reconcile", "--campaign", "story", "--records", records, "--engine-metrics", before, after, *reading)
        assert {name: each["count"] for name, each in held["classes"].items()} == {"equal": 2 * CALLS, "refused": 2}
        assert held["witnesses"], "the engine's own counters were not held against it"
        report = typed(gateway, "report", "story", *reading)
        assert (report["runs"]["missing"], report["total"]["calls"]) == (["never"], 2 * CALLS)
        assert next(row for row in report["groups"] if row["by"] == "model")["price"]["currency"] == "EUR"
        typed(gateway, "export", "story", "--out", tmp_path / "pack", "--records", records, *reading)
    (tmp_path / "receipt.json").write_text(json.dumps(receipt))
    checked = subprocess.run(
        [*without_network(), sys.executable, "-I", "-S", str(tmp_path / "pack" / "check.py"), "--against", str(tmp_path / "receipt.json")],
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
    )
    assert checked.stdout.startswith(f"fits: {2 * CALLS} calls of 2 runs, made again from their chains, and"), checked
    assert json.loads((tmp_path / "pack" / "reconciliation.json").read_text())["form"] == "gateway-reconciliation-1"
