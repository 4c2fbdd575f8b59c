"""What a user sees when something does not work: three lines, a documented exit code, never a traceback, never a hang."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gateway.cli.exits import MEANINGS, Exit
from gateway.cli.root import root
from tests.unit.cli.conftest import Gateway, House, commands

ROOT = Path(__file__).parents[3]
ARGUMENTS = {
    "where": "c1",
    "name": "r1",
    "key_or_run": "r1",
    "run": "c1/r1",
    "campaign": "c1",
    "file": "p.toml",
    "files": "p.toml",
    "call_id": "call-1",
    "what": "call-1",
    "command": "true",
    "names": "c1/r1",
}
NEEDED = {("campaign", "open"): ["--policy", "pilot"], ("preflight",): ["--expect", "requests=1"]} | {
    ("correct",): ["--set", "output_tokens=1", "--why", "x"],
    ("exec",): ["--campaign", "c1"],
    ("export",): ["--out", "pack"],
}
SERVING = {("policy", "check"), ("policy", "show"), ("serve",), ("up",), ("demo",), ("mock-engine",), ("version",), ("upstream", "probe")}
LOOKING = {("doctor",), ("selftest",)}
READING = {
    ("reconcile",),
    ("ledger", "verify"),
    ("ledger", "backup"),
    ("export",),
    ("report",),
    ("compare",),
    ("capture", "show"),
    ("capture", "export"),
    ("capture", "prune"),
}
LOCAL = SERVING | READING | LOOKING
"""Commands that speak to no running gateway."""
REMOTE = [words for words, _ in commands() if words not in LOCAL]


def arguments(words: tuple[str, ...]) -> list[str]:
    """A complete line for a command."""
    command = dict(commands())[words]
    given = [ARGUMENTS[parameter.name or ""] for parameter in command.params if isinstance(parameter, click.Argument)]
    return [*words, *NEEDED.get(words, []), *given]


def is_three_lines(text: str) -> bool:
    return [line.split(":")[0] for line in text.splitlines()] == ["problem", "cause", "mend"]


def test_every_command_takes_json() -> None:
    assert [words for words, command in commands() if not any("--json" in parameter.opts for parameter in command.params)] == []


def test_the_help_of_gateway_tells_every_exit_code() -> None:
    shown = CliRunner().invoke(root, ["--help"]).stdout
    assert [code for code in Exit if f"{code.value:<4} {MEANINGS[code]}" not in shown] == []


@pytest.mark.parametrize("words", REMOTE, ids=" ".join)
def test_where_no_gateway_runs_a_command_exits_four_at_once(alone: Gateway, words: tuple[str, ...]) -> None:
    done = alone(*arguments(words), "--json")
    assert done.exit_code == Exit.UNREACHABLE, done.exception
    assert is_three_lines(done.stderr)
    assert json.loads(done.stdout)["error"]["exit"] == 4


def test_a_gateway_that_does_not_answer_is_given_up_after_the_timeout(alone: Gateway, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        before = time.monotonic()
        done = alone("run", "close", "c1/r1", "--socket", str(path), "--timeout", "0.2")
        assert done.exit_code == Exit.UNREACHABLE
        assert time.monotonic() - before < 10
        assert "0.2 seconds" in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        ("run", "lst"),
        ("campaign", "open", "c1"),
        ("usage", "--by", "week"),
        ("usage", "--zone", "Europe/Berlin"),
        ("usage", "--format", "xml"),
        ("run", "close", "r1", "--outcome", "passed"),
        ("run", "close", "r1", "--outcome", "a=1", "--outcome", "a=2"),
        ("run", "close", "r1", "--turn-end", "done"),
        ("run", "close", "r1", "--drain", "-1"),
        ("run", "show", "/r1"),
        ("usage", "--timeout", "0"),
        ("usage", "--campaign", "c2", "--run", "c1/r1"),
        ("key", "revoke", "key-1", "--lane", "foreground"),
        ("serve", "--config", "nowhere.toml"),
        ("usage", "--config", "nowhere.toml"),
        ("policy", "show", "nowhere.toml"),
        ("mock-engine", "--listen", "here"),
    ],
    ids=" ".join,
)
def test_a_wrong_line_exits_two_with_three_lines(alone: Gateway, line: tuple[str, ...]) -> None:
    done = alone(*line)
    assert done.exit_code == Exit.USAGE, done.exception
    assert is_three_lines(done.stderr), done.stderr
    assert done.stdout == ""


def test_no_line_ever_shows_a_traceback(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for line in (["run", "list"], ["nonsense"], ["policy", "check", "nowhere.toml"], ["serve"]):
        done = subprocess.run([sys.executable, "-m", "gateway", *line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode in (2, 4), line
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"GATEWAY_CONTROL": "127.0.0.1:9465"}, "GATEWAY_CONTROL is no address"),
        ({"GATEWAY_CONTROL": "http://127.0.0.1:port"}, "is no http://HOST:PORT"),
        ({"GATEWAY_CONTROL": "http://[::1"}, "is no http://HOST:PORT"),
        ({"GATEWAY_CONTROL": "http://"}, "names no host"),
        ({"GATEWAY_CONTROL": "http://127.0.0.1:9", "GATEWAY_TOKEN": "topsecret\nx"}, "The token holds a character"),
        ({"GATEWAY_CONTROL": "http://127.0.0.1:9", "GATEWAY_TOKEN": "topsecr\u20act"}, "The token holds a character"),
        ({"GATEWAY_CONTROL": "https://127.0.0.1:9", "GATEWAY_CA_FILE": "none.pem"}, "none.pem can't be used"),
    ],
)
def test_an_environment_that_leads_nowhere_is_told_in_three_lines(
    alone: Gateway, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], words: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = alone("run", "list")
    assert done.exit_code in (Exit.USAGE, Exit.UNREACHABLE) and words in done.stderr
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["problem", "cause", "mend"]
    assert "topsec" not in done.stderr


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300", "0", "-1"])
def test_a_wait_without_an_end_is_no_wait(alone: Gateway, seconds: str) -> None:
    assert alone("run", "list", "--timeout", seconds).exit_code == Exit.USAGE


@pytest.mark.parametrize("line", [("usage",), ("receipt", "c/r"), ("explain", "call-1"), ("report", "c"), ("ledger", "verify"), ("capture", "show", "call-1")])
def test_a_ledger_that_is_none_is_told_in_three_lines(alone: Gateway, tmp_path: Path, line: tuple[str, ...]) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE bookmarks (url)")
        other.execute("PRAGMA user_version = 2")
    with contextlib.closing(sqlite3.connect(tmp_path / "damaged.db")) as damaged:
        damaged.execute("CREATE TABLE journal (url)")  # of its name only
        damaged.execute("PRAGMA user_version = 2")
    for file in ("other.db", "damaged.db"):
        done = alone(*line, "--ledger", file)
        assert done.exception is None or isinstance(done.exception, SystemExit)
        assert done.exit_code in (Exit.USAGE, Exit.NOT_SO) and "Traceback" not in done.output


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_a_terminal_that_can_not_show_a_letter_gets_its_number(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "\u6a21.toml").write_text('apis = ["openai.chat"]\n[models."\u6a21"]\ncounter = "bytes"\n')
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "policy", "check", "\u6a21.toml"], cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert ("\u6a21" if encoding == "utf-8" else "\\u6a21").encode() in done.stdout


def test_a_reader_that_goes_away_is_no_failure_of_ours(house: House) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GATEWAY_SOCKET": str(house.socket)}
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "campaign", "list"], env=environment, cwd=house.folder, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(writing)
    assert done.returncode == Exit.PIPE_CLOSED
    assert done.stderr == ""


def settings(folder: Path, control_socket: Path) -> Path:
    path = folder / "gateway.toml"
    path.write_text(f'[control]\nsocket = "{control_socket}"\n[upstreams.u]\naddress = "http://127.0.0.1:1"\nmodels = {{ small = "small" }}\n')
    return path


def test_the_socket_is_found_by_option_then_config_then_environment_then_the_file_that_lies_here(
    house: House, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong = house.socket, Path("/nonexistent/socket")
    here, there = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    monkeypatch.chdir(here)
    monkeypatch.delenv("GATEWAY_SOCKET", raising=False)

    def reached(*options: str) -> bool:
        return CliRunner().invoke(root, ["campaign", "list", *options]).exit_code == 0

    assert not reached()
    settings(here, right)
    assert reached()
    monkeypatch.setenv("GATEWAY_SOCKET", str(wrong))
    assert not reached()
    assert reached("--config", str(settings(there, right)))
    assert not reached("--config", str(settings(there, wrong)))
    assert reached("--config", str(settings(there, wrong)), "--socket", str(right))
    settings(here, wrong)
    monkeypatch.setenv("GATEWAY_SOCKET", str(right))
    assert reached()
