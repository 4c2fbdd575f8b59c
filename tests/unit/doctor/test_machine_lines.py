"""What is said of the machine, by what was seen of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.doctor.line import Line
from gateway.doctor.machine_lines import machine_lines, token_line
from gateway.doctor.seen import Folder, MachineSeen, Running
from gateway.settings.loading import settings_from_text
from gateway.settings.open_files import files_needed

SETTINGS = settings_from_text('[upstreams.e]\naddress = "http://127.0.0.1:1"\nmodels = { m = "m" }\n[ledger]\nmin_free_bytes = 1000\n', "/x/gateway.toml")
WITH_TOKEN = settings_from_text(
    '[upstreams.e]\naddress = "http://127.0.0.1:1"\nmodels = { m = "m" }\n[control]\nlisten = "10.0.0.1:1"\ntoken_env = "TOKEN"\n', "/x/gateway.toml"
)
NOW = 1_700_000_000_000
RIGHT = MachineSeen(
    user="gateway",
    ledger=Folder(path=Path("/x"), exists=True, writable=True),
    socket=Folder(path=Path("/x"), exists=True, writable=True),
    free_bytes=1 << 30,
    files=files_needed(SETTINGS.table),
    files_of="a gateway started from here",
    modes={Path("/x/gateway.ledger"): 0o644, Path("/x/gateway.ledger.secret"): 0o600},
    last_entry_ms=NOW - 1,
    ledger_problem="",
    system_ms=NOW,
    running=None,
)


def said(seen: MachineSeen) -> dict[str, Line]:
    lines = list(machine_lines(SETTINGS, seen))
    assert all(bool(line.mend) == (line.status != "ok") for line in lines)
    return {line.check: line for line in lines}


def test_a_right_machine_is_all_ok() -> None:
    assert {line.status.value for line in said(RIGHT).values()} == {"ok"}


@pytest.mark.parametrize(
    ("seen", "check", "status"),
    [
        (replace(RIGHT, free_bytes=999), "disk", "fail"),
        (replace(RIGHT, free_bytes=1_999), "disk", "warn"),
        (replace(RIGHT, free_bytes=2_000), "disk", "ok"),
        (replace(RIGHT, free_bytes=None), "disk", "fail"),
        (replace(RIGHT, files=RIGHT.files - 1), "files", "fail"),
        (replace(RIGHT, ledger=replace(RIGHT.ledger, writable=False)), "permissions.ledger", "fail"),
        (replace(RIGHT, ledger=replace(RIGHT.ledger, exists=False, writable=False)), "permissions.ledger", "fail"),
        (replace(RIGHT, ledger=replace(RIGHT.ledger, exists=False)), "permissions.ledger", "ok"),
        (replace(RIGHT, socket=replace(RIGHT.socket, open_to_others=True)), "permissions.socket", "fail"),
        (replace(RIGHT, modes={Path("/x/gateway.ledger.secret"): 0o640}), "permissions.secrets", "fail"),
        (replace(RIGHT, modes={Path("/x/gateway.ledger"): 0o664}), "permissions.secrets", "fail"),
        (replace(RIGHT, modes={}), "permissions.secrets", "ok"),
        (replace(RIGHT, last_entry_ms=NOW + 1), "clock", "fail"),
        (replace(RIGHT, last_entry_ms=None), "clock", "ok"),
        (replace(RIGHT, ledger_problem="damaged"), "clock", "fail"),
        (replace(RIGHT, last_entry_ms=NOW + 5, running=Running(clock={"drift_ms": 0, "doubt": ""})), "clock", "ok"),
        (replace(RIGHT, running=Running(clock={"drift_ms": -90_000, "doubt": ""})), "clock", "warn"),
        (replace(RIGHT, running=Running(clock={"drift_ms": 0, "doubt": "the system clock is ahead"})), "clock", "fail"),
        (replace(RIGHT, running=Running(mute="refused")), "gateway", "warn"),
        (replace(RIGHT, running=Running(process=7)), "gateway", "ok"),
    ],
)
def test_each_fault_has_its_line(seen: MachineSeen, check: str, status: str) -> None:
    lines = said(seen)
    assert lines[check].status == status
    assert [line.check for line in lines.values() if line.status != "ok"] == ([check] if status != "ok" else [])


def test_the_token_must_be_there_and_long_enough() -> None:
    assert token_line(SETTINGS, {}, 32) is None
    told = [token_line(WITH_TOKEN, environment, 32) for environment in ({}, {"TOKEN": "short"}, {"TOKEN": "t" * 32})]
    assert [line.status.value for line in told if line] == ["fail", "fail", "ok"]


def test_a_fault_is_not_told_without_its_numbers() -> None:
    assert said(replace(RIGHT, last_entry_ms=NOW + 600_000))["clock"].text.startswith("the system's clock stands 600 s behind")
