"""Tables: for people, for pipes, for programs."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from gateway.accounting.usage import Outcome, Source, Usage
from gateway.cli.screen import Column, Screen, Table
from gateway.cli.words import Kind
from tests.unit.cli.conftest import Gateway, House

ROOT = Path(__file__).parents[3]
LONG = "a-name-that-is-longer-than-any-terminal-is-wide-" * 5

SHOWN = f"""
from gateway.cli.screen import Column, Facts, Screen, Table
from gateway.cli.words import Kind
import sys
screen = Screen(as_json="--json" in sys.argv)
columns = (Column("name", "NAME"), Column("tokens", "TOKENS", Kind.NUMBER))
rows = [{{"name": "{LONG}", "tokens": 1234567}}, {{"name": "x\\x1b[31m", "tokens": None}}]
screen.present({{"rows": rows}}, Facts(title="Things", row={{"tokens": 7654321}}, columns=columns[1:]), Table(columns=columns, rows=rows))
"""


def piped(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", SHOWN, *arguments], cwd=ROOT, capture_output=True, timeout=60, check=True)
    assert done.stderr == b""
    return done.stdout.decode()


def on_a_terminal(line: list[str], folder: Path, environment: dict[str, str]) -> str:
    main, side = pty.openpty()
    with subprocess.Popen(line, cwd=folder, stdout=side, stderr=side, stdin=side, env=environment) as process:
        os.close(side)
        shown = b""
        while True:
            try:
                piece = os.read(main, 65536)
            except OSError:  # how Linux says that the other side is closed
                break
            if not piece:
                break
            shown += piece
        assert process.wait(timeout=60) == 0
    os.close(main)
    return shown.decode()


def drawn() -> str:
    return on_a_terminal([sys.executable, "-c", SHOWN], ROOT, {**os.environ, "TERM": "xterm", "COLUMNS": "60"})


def test_piped_text_has_no_colour_no_box_no_truncation_and_bare_digits() -> None:
    shown = piped()
    assert "\x1b" not in shown
    assert not any(0x2500 <= ord(char) < 0x2580 or char == "…" for char in shown)
    assert LONG in shown
    assert "1234567" in shown and "7654321" in shown
    assert "," not in shown


def test_piped_columns_are_aligned() -> None:
    header, first, second = piped().splitlines()[2:]
    assert header.endswith("TOKENS") and first.endswith("1234567") and second.endswith("unknown")
    assert len(header) == len(first) == len(second)


def test_a_terminal_gets_a_table_with_thousands_separators_and_all_of_each_name() -> None:
    shown = drawn()
    assert "1,234,567" in shown and "7,654,321" in shown
    assert "unknown" in shown
    assert "\u2500" in shown
    assert "\u2026" not in shown
    letters = "".join(char for char in shown if char in LONG)
    assert letters.count("longer") == 5


def test_a_terminal_is_not_driven_by_a_name() -> None:
    assert "x\\u001b[31m" in drawn()


def test_json_is_one_document_and_nothing_else() -> None:
    document = json.loads(piped("--json"))
    assert document["rows"][1] == {"name": "x\x1b[31m", "tokens": None}


def test_the_usage_table_is_drawn_on_a_terminal_and_plain_in_a_pipe(house: House, gateway: Gateway) -> None:
    gateway("campaign", "open", "c1", "--policy", "pilot")
    gateway("run", "open", "c1/r1")
    house.call("c1", "r1", "call-1", Usage(input_tokens=1_234_567, output_tokens=None), source=Source.UNKNOWN, outcome=Outcome.LOST)
    line = [sys.executable, "-m", "gateway", "usage", "--ledger", str(house.ledger_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "200"}
    plain = subprocess.run(line, cwd=house.folder, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
    assert plain.isascii() and "\x1b" not in plain and "1234567" in plain
    table = on_a_terminal(line, house.folder, environment)
    assert "1,234,567" in table and "unknown" in table and "\u2500" in table


def test_letters_that_take_two_cells_are_aligned_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    columns = (Column("task", "TASK"), Column("calls", "CALLS", Kind.NUMBER))
    Screen(as_json=False).present({}, Table(columns=columns, rows=[{"task": "解析器", "calls": 1}, {"task": "parser", "calls": 2}]))
    header, wide, narrow = capsys.readouterr().out.splitlines()
    assert cell_len(wide) == cell_len(narrow) == cell_len(header)
