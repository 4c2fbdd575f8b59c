"""What real agents sent, sent again: the gateway decides and reads as it did when they ran, without them.

Kept under tests/fixtures/agents by `make agents KEEP=1`. Texts in the bodies were cut short when they were kept; all else is as it came over the wire.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.ledger.reading import LedgerReader
from gateway.reconcile.classes import Class
from gateway.reconcile.finding import find_records
from gateway.reconcile.reconciling import reconcile
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, RawClient
from tests.support.waiting import eventually

KEPT = Path(__file__).parents[1] / "fixtures" / "agents"
SCENARIOS = ("ok", "cap")
FOLDERS = sorted(path.parent for name in SCENARIOS for path in KEPT.glob(f"*/{name}/meta.json"))
ALL = sorted(path.parent for path in KEPT.glob("*/*/meta.json"))
OWN_HEADERS = ("host", "content-length", "connection", "authorization", "x-api-key", "accept-encoding", "transfer-encoding")
"""Of the connection, not of the call, or made anew here."""
SAME = (
    "dialect", "model", "lane", "stream", "outcome", "source", "input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "tool_calls",
    "charged_requests", "charged_input_tokens", "charged_output_tokens", "charged_tool_calls", "ceiling", "ceiling_from",
)  # fmt: skip
AGENTS = {"aider-chat", "claude", "codex", "copilot", "inspect-ai", "mini-swe-agent", "opencode", "pi", "qwen"}


@dataclass(slots=True)
class Place:
    gateway: GatewayProcess
    engine: MockProcess


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    metas = [json.loads((folder / "meta.json").read_text()) for folder in FOLDERS]
    policies = {policy_of(meta): meta["policy"] for meta in metas}
    models = {name: name for policy in policies.values() for name in policy["models"]}
    folder = tmp_path_factory.mktemp("replayed")
    with MockProcess() as engine, GatewayProcess(folder, engine.url, policies=policies, models=models) as gateway:
        yield Place(gateway, engine)


def policy_of(meta: dict[str, Any]) -> str:
    return f"p-{meta['setup']}-{meta['scenario']}"


def name_of(folder: Path) -> str:
    return f"{folder.parent.name}-{folder.name}"


def requests_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]


def again(port: int, key: str, kept: dict[str, Any]) -> RawAnswer:
    headers = {name: value.replace("…", "...") for name, value in kept["headers"] if name.lower() not in OWN_HEADERS}
    for name, value in kept["headers"]:
        if name.lower() in ("authorization", "x-api-key"):
            headers[name] = f"Bearer {key}" if value.startswith("Bearer ") else key
    body = json.dumps(kept["body"], ensure_ascii=False).encode() if "body" in kept else b""
    with RawClient(port) as client:
        client.request(kept["method"], kept["target"], headers={**headers, "Connection": "close"}, body=body)
        return client.answer()


def code_of(answer: RawAnswer) -> str:
    if answer.status < 400 or not answer.body:
        return ""
    error = answer.json()["error"]
    return str(error.get("code") or error.get("type") or "")


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_an_agents_requests_are_decided_and_read_as_when_it_ran(place: Place, folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    place.engine.script(meta["playbook"])
    run = place.gateway.opened(f"c-{name_of(folder)}", "r1", policy=policy_of(meta))
    decided = []
    kept = requests_of(folder)
    for one in kept:
        answer = again(place.gateway.port, run.key, one)
        decided.append((answer.status, code_of(answer)))
    assert decided == [(one["status"], one["code"]) for one in kept]
    with LedgerReader(folder / "ledger.sqlite") as then, LedgerReader(place.gateway.ledger) as now:
        assert [differing(*pair) for pair in zip(read(now, run.campaign), read(then, meta["campaign"]), strict=True)] == [{}] * len(meta["outcomes"])
        expected = refused(then, meta["campaign"])
        eventually(lambda: refused(now, run.campaign) == expected, f"these refusals: {expected}")


def read(ledger: LedgerReader, campaign: str) -> list[dict[str, object]]:
    return [{name: row[name] for name in SAME} for row in ledger.calls(campaign=campaign)]


def differing(one: dict[str, object], other: dict[str, object]) -> dict[str, object]:
    return {name: (one[name], other[name]) for name in SAME if one[name] != other[name]}


def refused(ledger: LedgerReader, campaign: str) -> list[tuple[object, ...]]:
    return [(row["code"], row["final"], row["limit_name"], row["ceiling"], row["settled"], row["refused"]) for row in ledger.refusals(campaign=campaign)]


@pytest.mark.parametrize("folder", ALL, ids=name_of)
def test_what_is_kept_is_whole_and_small_and_holds_no_secret(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    with LedgerReader(folder / "ledger.sqlite") as ledger:
        assert ledger.verify().fits
        assert [row["outcome"] for row in ledger.calls()] == meta["outcomes"]
        assert len(requests_of(folder)) >= len(meta["outcomes"])
    assert list(folder.glob("record.*"))
    whole = sum(path.stat().st_size for path in folder.iterdir())
    assert whole < 150_000, whole
    for path in folder.iterdir():
        assert b"pytest-of" not in path.read_bytes() and b"/root/" not in path.read_bytes(), path.name
    for one in requests_of(folder):
        for name, value in one["headers"]:
            if name.lower() in ("authorization", "x-api-key"):
                assert value.endswith("gw-made-up-key-0123456789abcdef")


@pytest.mark.parametrize("folder", ALL, ids=name_of)
def test_an_agents_own_record_and_the_ledger_reconcile_without_a_finding(folder: Path) -> None:
    with LedgerReader(folder / "ledger.sqlite") as ledger:
        done = reconcile(ledger, find_records(sorted(folder.glob("record.*"))), "agents", "r1")
    classes = {each.name for each in done.matches}
    assert done.clean
    assert classes <= {Class.EQUAL, Class.SIDE_CALL, Class.OWN_ESTIMATE, *([] if folder.name == "ok" else [Class.REFUSED, Class.GATEWAY_CUT])}
    assert (Class.GATEWAY_CUT in classes) == folder.name.startswith("cut-")


def test_each_agent_is_kept_in_each_of_its_formats() -> None:
    metas = [json.loads((folder / "meta.json").read_text()) for folder in ALL]
    assert {meta["agent"] for meta in metas} == AGENTS
    assert {meta["dialect"] for meta in metas if meta["agent"] == "opencode"} == {"openai.chat", "openai.responses", "anthropic.messages"}
    assert {(meta["setup"], name) for meta in metas for name in SCENARIOS} <= {(meta["setup"], meta["scenario"]) for meta in metas}
    assert {meta["agent"] for meta in metas if meta["scenario"] in ("cut-text", "cut-whole")} == AGENTS
