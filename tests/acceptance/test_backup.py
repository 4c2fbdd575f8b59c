"""A backup of a ledger that is being served, and what it takes to serve from it: no budget comes back unseen, and no receipt is called a forgery for it."""

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gateway.ledger.reading import LedgerReader
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import chat_once

POLICY = {"run": {"requests": 50}, "campaign": {"requests": 100}}


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gateway", *map(str, arguments)], capture_output=True, text=True, timeout=60)


def call(gateway: GatewayProcess, key: str) -> int:
    return chat_once(gateway.port, key, max_tokens=5, messages=[{"role": "user", "content": "hello"}]).status


def verified(ledger: Path, kept: list[Any], folder: Path) -> dict[str, Any]:
    folder.joinpath("kept.json").write_text(json.dumps(kept))
    document: dict[str, Any] = json.loads(command("ledger", "verify", "--ledger", ledger, "--against", folder / "kept.json", "--json").stdout)
    return document


def test_a_backup_is_taken_under_load_and_serves_only_when_a_person_says_so(tmp_path: Path) -> None:
    copy, kept_early, kept_late = tmp_path / "copy.ledger", [], []
    with MockProcess(script={"gap_ms": 5}) as mock, GatewayProcess(tmp_path, mock.url, policy=POLICY) as gateway:
        done, open_ = gateway.opened("pilot", "done"), gateway.opened("pilot", "goes-on")
        assert call(gateway, done.key) == 200
        kept_early.append(gateway.control.close_run(done, {"exit": 0})["receipt"])
        callers = [threading.Thread(target=lambda: [call(gateway, open_.key) for _ in range(5)]) for _ in range(4)]
        for caller in callers:
            caller.start()
        answer = command("ledger", "backup", copy, "--ledger", gateway.ledger)
        assert answer.returncode == 0, answer
        for caller in callers:
            caller.join()
        assert call(gateway, open_.key) == 200
        kept_late.append(gateway.control.close_run(open_, {"exit": 0})["receipt"])
        assert gateway.stop() == 0

        assert command("ledger", "verify", "--ledger", copy).returncode == 0
        assert oct(copy.stat().st_mode & 0o777) == "0o600"
        then = json.loads(command("usage", "--ledger", copy, "--campaign", "pilot", "--json").stdout)["total"]["calls"]
        assert 1 <= then < 22
        shutil.move(gateway.ledger, tmp_path / "lost.ledger")
        shutil.copy(copy, gateway.ledger)
        for beside in ("-wal", "-shm"):
            Path(f"{gateway.ledger}{beside}").unlink(missing_ok=True)

        with pytest.raises(AssertionError, match="is a backup"):
            gateway.start()
        gateway.start("--accept-restore")
        assert gateway.control.get("/v1/campaigns/pilot")["state"] == "halted"
        assert call(gateway, open_.key) == 404  # its key is revoked: final
        assert not [key for key in gateway.control.get("/v1/keys")["keys"] if key["live"]]
        gateway.control.post("/v1/campaigns/pilot/resume")
        assert call(gateway, open_.key) == 404
        again = gateway.control.open_run("pilot", "again")
        assert call(gateway, again.key) == 200
        kept_new = [gateway.control.close_run(again, {"exit": 0})["receipt"]]
        assert gateway.stop() == 0
        with pytest.raises(AssertionError, match="is no backup"):
            gateway.start("--accept-restore")

    found = verified(gateway.ledger, [*kept_early, *kept_late, *kept_new], tmp_path)
    assert (found["fits"], found["against"], found["after_backup"]) == (True, 6, 2), found
    assert verified(copy, [*kept_early, *kept_late], tmp_path)["after_backup"] == 2
    with LedgerReader(gateway.ledger) as reader:
        assert reader.query("SELECT count(*) AS n FROM entries WHERE kind = 'restored'") == [{"n": 1}]
        assert reader.query("SELECT count(*) AS n FROM call_records WHERE status = 'reserved'") == [{"n": 0}]
        assert all(row["outcome"] == "lost" for row in reader.calls() if row["status"] == "expired")


def test_what_the_backup_held_is_still_held_against_it(tmp_path: Path) -> None:
    with MockProcess() as mock, GatewayProcess(tmp_path, mock.url, policy=POLICY) as gateway:
        run = gateway.opened("pilot", "r1")
        assert call(gateway, run.key) == 200
        receipt = gateway.control.close_run(run, {"exit": 0})["receipt"]
        assert gateway.stop() == 0
    copy = tmp_path / "copy"
    assert command("ledger", "backup", copy, "--ledger", gateway.ledger).returncode == 0
    assert verified(copy, [receipt], tmp_path)["fits"]
    forged = {**receipt, "hash": "00" * 32}
    found = verified(copy, [forged], tmp_path)
    assert (found["fits"], "written anew" in found["problem"]) == (False, True)
    assert command("ledger", "backup", copy, "--ledger", gateway.ledger).returncode == 2  # it replaces nothing
    assert sqlite3.connect(copy).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert command("ledger", "backup", tmp_path / "x", "--ledger", tmp_path / "none").returncode == 2
    assert not (tmp_path / "x").exists()
