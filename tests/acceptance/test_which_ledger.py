"""Each command that reads a ledger finds the one that the running gateway writes, from a folder where another lies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli.root import root
from gateway.client import DispatchWriter, usage_of
from tests.support.gateway_process import GatewayProcess
from tests.support.made_campaign import made
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer, chat_once

SETTINGS = {"ledger": {"path": "books/pilot.ledger"}}
"""From the folder of gateway.toml on, which is not where the commands are typed."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("elsewhere")
    folder.joinpath("books").mkdir()
    with MockProcess() as mock, GatewayProcess(folder, mock.url, policy={"capture": True}, settings=SETTINGS) as process:
        yield process


@pytest.fixture(scope="module")
def call(gateway: GatewayProcess) -> RawAnswer:
    """Of run c1/r1; another campaign, c2, has a run without any."""
    answer = chat_once(gateway.port, gateway.opened("c1", "r1").key)
    gateway.opened("c2", "r1")
    return answer


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gateway: GatewayProcess) -> Path:
    """A folder with another ledger at the usual place, and a shell that knows the running gateway's socket."""
    made(tmp_path / "gateway.ledger", "another", [])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GATEWAY_SOCKET", gateway.process.ready["control"].removeprefix("unix:"))
    return tmp_path


def typed(gateway: GatewayProcess, *words: object) -> Result:
    done = CliRunner().invoke(root, [*map(str, words)])
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith(f"ledger: {gateway.folder / 'books' / 'pilot.ledger'} (the gateway at ")
    return done


def test_report_and_compare(gateway: GatewayProcess, call: RawAnswer, here: Path) -> None:
    assert json.loads(typed(gateway, "report", "c1", "--json").stdout)["total"]["calls"] == 1
    assert [row["campaign"] for row in json.loads(typed(gateway, "compare", "c1", "c2", "--json").stdout)["campaigns"]] == ["c1", "c2"]


def test_export(gateway: GatewayProcess, call: RawAnswer, here: Path) -> None:
    assert json.loads(typed(gateway, "export", "c1", "--out", here / "pack", "--json").stdout)["calls"] == 1


def test_reconcile(gateway: GatewayProcess, call: RawAnswer, here: Path) -> None:
    with DispatchWriter(here / "record.jsonl", "driver", session="s1") as record:
        answer = call.json()
        record.note("answer", response_id=answer["id"], request_ids=[call.headers["x-request-id"]], model=answer["model"], usage=usage_of(answer))
    assert json.loads(typed(gateway, "reconcile", "c1/r1", here / "record.jsonl", "--json").stdout)["clean"]


def test_capture(gateway: GatewayProcess, call: RawAnswer, here: Path) -> None:
    assert json.loads(typed(gateway, "capture", "show", call.headers["x-request-id"]).stdout)["messages"]
    assert json.loads(typed(gateway, "capture", "export", "c1", "--out", here / "bodies.jsonl", "--json").stdout) == {
        "out": str(here / "bodies.jsonl"),
        "calls": 1,
        "without_bodies": 0,
    }
    assert json.loads(typed(gateway, "capture", "prune", "--all", "--dry-run", "--json").stdout)["bodies"] > 0


def test_ledger_verify_and_backup(gateway: GatewayProcess, call: RawAnswer, here: Path) -> None:
    assert json.loads(typed(gateway, "ledger", "verify", "--json").stdout)["ledger"] == str(gateway.folder / "books" / "pilot.ledger")
    made = json.loads(typed(gateway, "ledger", "backup", here / "copy", "--json").stdout)
    assert made["entries"] > 0
    assert CliRunner().invoke(root, ["report", "c1", "--ledger", str(here / "copy")]).exit_code == 0
