"""The tests' own tools: a check that can't fail is a defect, so these are checked themselves."""

from __future__ import annotations

import tomllib
from pathlib import Path

from gateway.policy import load_policy
from gateway.settings import load_settings
from tests.support import sse
from tests.support.gateway_process import GatewayProcess
from tests.support.skips import NO_ID, id_of
from tests.support.storeys import BUDGETS_S, Accounts, storey_of
from tests.support.toml import merged, to_toml


def test_a_test_belongs_to_the_storey_of_its_folder() -> None:
    assert storey_of("tests/unit/ledger/test_a.py::test_b[x/y]") == "unit"
    assert storey_of("tests/test_a.py::test_b") == "other"


def test_a_storey_over_its_budget_fails_the_session() -> None:
    accounts = Accounts()
    accounts.saw("tests/unit/a.py::b", "call", BUDGETS_S["unit"])
    assert accounts.complaints() == []
    accounts.saw("tests/unit/a.py::b", "teardown", 0.1)
    assert len(accounts.complaints()) == 1
    accounts.factor = 2.0
    assert accounts.complaints() == []


def test_only_a_skip_that_is_allowed_leaves_the_session_well() -> None:
    assert id_of("Skipped: [real-engine] not installed") == "real-engine"
    accounts = Accounts()
    accounts.saw_skip("tests/unit/a.py::b", "Skipped: [real-engine] not installed")
    assert accounts.complaints() == []
    accounts.allowed = frozenset({"real-engine"})
    assert accounts.complaints() == []
    accounts.allowed = frozenset()
    assert len(accounts.complaints()) == 1
    accounts.allowed = frozenset({"real-engine"})
    accounts.saw_skip("tests/unit/a.py::c", "Skipped: just so")
    assert accounts.skipped[-1][0] == NO_ID and len(accounts.complaints()) == 1


def test_each_test_is_counted_once() -> None:
    accounts = Accounts()
    for when in ("setup", "call", "teardown"):
        accounts.saw("tests/unit/a.py::b", when, 0.5)
    assert any("1 tests" in line and "1.5 s" in line for line in accounts.lines())


def test_tables_come_back_from_toml_as_they_went() -> None:
    tables = {"a": 1, "b": True, "c": {"d e": {"f": ["x", 'y"z']}, "g": "h"}, "empty": {}}
    assert tomllib.loads(to_toml(tables)) == tables


def test_merging_keeps_what_is_not_said_anew() -> None:
    assert merged({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 9}, "e": 4}) == {"a": {"b": 9, "c": 2}, "d": 3, "e": 4}


def test_events_are_read_by_the_letter() -> None:
    body = b': ping\n\nevent: x\ndata: {"a":\ndata: 1}\n\ndata:[DONE]\r\n\r\ndata: half'
    found = sse.events(body)
    assert [event.name for event in found] == ["x", ""]
    assert found[0].json() == {"a": 1} and found[1].done
    assert sse.unfinished(body) == b"data: half" and sse.comments(body) == 1


def test_a_gateways_files_are_good_settings_and_a_good_policy(tmp_path: Path) -> None:
    policy = {"run": {"requests": 3}}
    gateway = GatewayProcess(tmp_path, "http://127.0.0.1:9", policy=policy, settings={"bounds": {"queue_length": 7}}, slots=2, engine="generic")
    try:
        settings = load_settings(gateway.config)
        assert settings.bounds.queue_length == 7 and settings.upstreams["engine"].slots == 2
        assert load_policy(tmp_path / "policies" / "test.toml").policy.run.requests == 3
    finally:
        gateway.close()
