"""`gateway ledger verify` tells a ledger that holds together from one that was changed, cut or written anew."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

from gateway.accounting.usage import Usage
from tests.unit.cli.conftest import Gateway, House


def closed_run(gateway: Gateway, house: House) -> Path:
    """A file with the receipt of a run of one call."""
    gateway("campaign", "open", "c1", "--policy", "pilot")
    gateway("run", "open", "c1/r1")
    house.call("c1", "r1", "call-1", Usage(input_tokens=3, output_tokens=4))
    gateway("run", "close", "r1")
    kept = house.folder / "receipts.json"
    kept.write_text(gateway("receipt", "r1", "--json").stdout)
    return kept


def changed(house: House, *statements: str) -> str:
    copy = house.folder / "copy.ledger"
    shutil.copy(house.ledger_path, copy)
    for ending in ("-wal", "-shm"):
        if Path(f"{house.ledger_path}{ending}").exists():
            shutil.copy(f"{house.ledger_path}{ending}", f"{copy}{ending}")
    with sqlite3.connect(copy) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return str(copy)


def test_a_ledger_that_holds_together_exits_zero_also_while_it_is_served(gateway: Gateway, house: House) -> None:
    kept = closed_run(gateway, house)
    done = gateway("ledger", "verify", "--ledger", str(house.ledger_path), "--against", str(kept))
    assert done.exit_code == 0, done.stderr + done.stdout
    assert "holds together" in done.stdout
    document = json.loads(gateway("ledger", "verify", "--ledger", str(house.ledger_path), "--against", str(kept), "--json").stdout)
    assert document["fits"] is True and document["against"] >= 2 and document["entries"] > 5


def test_a_changed_number_exits_one_and_names_the_first_entry(gateway: Gateway, house: House) -> None:
    closed_run(gateway, house)
    copy = changed(house, "UPDATE journal SET body = replace(body, '\"output_tokens\":4', '\"output_tokens\":3') WHERE kind = 'settle'")
    done = gateway("ledger", "verify", "--ledger", copy)
    assert done.exit_code == 1
    assert "does not hold together" in done.stdout and "chain run:c1/r1" in done.stdout
    document = json.loads(gateway("ledger", "verify", "--ledger", copy, "--json").stdout)
    assert document["fits"] is False and document["number"] and document["problem"]


def test_a_receipt_that_was_kept_shows_what_the_file_alone_does_not(gateway: Gateway, house: House) -> None:
    """Another ledger holds together by itself, and not against a receipt of this one."""
    kept = closed_run(gateway, house)
    document = json.loads(kept.read_text())
    document["hash"] = "00" * 32
    other = house.folder / "other.json"
    other.write_text(json.dumps([document]))
    assert gateway("ledger", "verify", "--ledger", str(house.ledger_path)).exit_code == 0
    assert gateway("ledger", "verify", "--ledger", str(house.ledger_path), "--against", str(other)).exit_code == 1


def test_a_file_without_receipts_is_refused_because_it_would_let_anything_pass(gateway: Gateway, house: House) -> None:
    closed_run(gateway, house)
    for content in ("", "{}", "[1, 2]", "not json", '{"chain": "run:c1/r1"}'):
        empty = house.folder / "empty.json"
        empty.write_text(content)
        done = gateway("ledger", "verify", "--ledger", str(house.ledger_path), "--against", str(empty))
        assert done.exit_code == 2, content
        assert done.stderr.startswith("problem:")


def test_receipts_may_stand_one_after_the_other_in_a_file(gateway: Gateway, house: House) -> None:
    kept = closed_run(gateway, house)
    once = json.loads(gateway("ledger", "verify", "--ledger", str(house.ledger_path), "--against", str(kept), "--json").stdout)["against"]
    kept.write_text(kept.read_text() + "\n" + json.dumps(json.loads(kept.read_text())) + "\n")
    twice = json.loads(gateway("ledger", "verify", "--ledger", str(house.ledger_path), "--against", str(kept), "--json").stdout)["against"]
    assert twice == 2 * once


def test_looking_for_a_ledger_makes_none(alone: Gateway, tmp_path: Path) -> None:
    for command in (("ledger", "verify"), ("usage",), ("receipt", "r1")):
        done = alone(*command, "--ledger", "nowhere.ledger")
        assert done.exit_code == 2, done.stderr
        assert "there is no ledger nowhere.ledger" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_ledger_is_no_traceback(alone: Gateway, tmp_path: Path) -> None:
    (tmp_path / "text.ledger").write_text("hello\n" * 1000)
    sqlite3.connect(tmp_path / "other.ledger").execute("CREATE TABLE t (x)").connection.close()
    for name in ("text.ledger", "other.ledger"):
        for command in (("ledger", "verify"), ("usage",), ("receipt", "r1")):
            done = alone(*command, "--ledger", name)
            assert done.exit_code in (1, 2), (name, command, done.exception)
            assert done.stderr.startswith("problem:"), (name, command, done.exception)
