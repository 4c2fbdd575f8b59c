"""`gateway policy` reads files alone, and says all that is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import PILOT, Gateway

SETTINGS = """
[upstreams.u]
address = "http://127.0.0.1:1"
engine = "llama.cpp"
models = { MODEL = "x" }

[limits]
requests = 5000
"""


@pytest.fixture
def pilot(tmp_path: Path) -> Path:
    path = tmp_path / "pilot.toml"
    path.write_text(PILOT)
    return path


def test_a_policy_that_can_be_served_is_ok_and_has_a_hash(alone: Gateway, pilot: Path) -> None:
    done = alone("policy", "check", "pilot.toml")
    assert done.exit_code == 0 and done.stderr == ""
    row = done.stdout.splitlines()[1].split()
    assert row[:2] == ["pilot.toml", "ok"] and len(row[2]) == 64


def test_every_mistake_is_told_with_file_line_and_the_right_name_and_the_good_files_are_told_too(alone: Gateway, pilot: Path, tmp_path: Path) -> None:
    (tmp_path / "plot.toml").write_text(PILOT.replace("[run]\nrequests", "[run]\nrequsts").replace("[campaign]", "[campain]"))
    done = alone("policy", "check", "plot.toml", "pilot.toml")
    assert done.exit_code == 2
    assert [line.split()[1] for line in done.stdout.splitlines()[1:3]] == ["wrong", "ok"]
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and all(line.startswith("plot.toml:") for line in lines)
    assert "run.requests" in lines[0]
    document = json.loads(alone("policy", "check", "plot.toml", "pilot.toml", "--json").stdout)
    assert [policy["result"] for policy in document["policies"]] == ["wrong", "ok"]
    assert document["policies"][0]["errors"] == lines


def test_a_model_that_no_upstream_serves_is_told_where_there_is_a_gateway_toml(alone: Gateway, pilot: Path, tmp_path: Path) -> None:
    assert "no gateway.toml" in alone("policy", "check", "pilot.toml").stdout
    (tmp_path / "gateway.toml").write_text(SETTINGS.replace("MODEL", "other"))
    done = alone("policy", "check", "pilot.toml")
    assert done.exit_code == 2 and "small" in done.stderr
    (tmp_path / "right.toml").write_text(SETTINGS.replace("MODEL", "small"))
    held = alone("policy", "check", "pilot.toml", "--config", "right.toml")
    assert held.exit_code == 0 and "held against right.toml" in held.stdout


def test_show_fills_in_every_default(alone: Gateway, pilot: Path) -> None:
    shown = alone("policy", "show", "pilot.toml").stdout
    assert [line.split() for line in shown.splitlines() if line.startswith("admission.queue_seconds")] == [["admission.queue_seconds", "120"]]
    document = json.loads(alone("policy", "show", "pilot.toml", "--json").stdout)
    assert document["policy"]["run"]["requests"] == 10 and document["policy"]["admission"]["over"] == "clamp"


def test_effective_shows_where_each_limit_is_set_those_of_the_gateway_included(alone: Gateway, pilot: Path, tmp_path: Path) -> None:
    (tmp_path / "right.toml").write_text(SETTINGS.replace("MODEL", "small"))
    shown = alone("policy", "show", "pilot.toml", "--effective", "--config", "right.toml").stdout
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line}
    assert rows["run.requests"] == ["10", f"pilot.toml:{PILOT.splitlines().index('requests = 10') + 1}"]
    assert rows["gateway.requests"] == ["5000", "right.toml:8"]
    assert rows["admission.over"] == ["clamp", "default"]
    without = json.loads(alone("policy", "show", "pilot.toml", "--effective", "--json").stdout)
    under = json.loads(alone("policy", "show", "pilot.toml", "--effective", "--config", "right.toml", "--json").stdout)
    assert without["hash"] == under["hash"] and without["limits_hash"] != under["limits_hash"]
