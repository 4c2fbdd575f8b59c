"""README's commands are done in a folder of their own, in its order, against a real gateway; what it shows of their output is what they print."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.ledger.reading import LedgerReader
from tests.support.mock_process import MockProcess
from tests.support.processes import ROOT
from tests.support.readme import Block, blocks, not_printed, outputs, script

README = (ROOT / "README.md").read_text()
BLOCKS = blocks(README)
EXECUTED = frozenset({("sh", "run"), ("sh", "serve"), ("sh", "make")})


@contextmanager
def a_folder() -> Iterator[Path]:
    """Short: a socket's path may not pass 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="gw-"))
    (path / ".venv").symlink_to(sys.prefix)
    yield path
    shutil.rmtree(path)


def done(folder: Path, engine_url: str, doing: list[Block]) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy") and not name.startswith(("OPENAI_", "GATEWAY_"))}
    replaced = {"http://127.0.0.1:8081": engine_url, "127.0.0.1:8080": "127.0.0.1:0"}
    return subprocess.run(
        ["bash"],
        input=script(doing, replaced),
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )


@pytest.fixture(scope="module")
def ran() -> Iterator[tuple[str, Path]]:
    """All of it, once: what was printed, and the folder."""
    with MockProcess() as engine, a_folder() as folder:
        finished = done(folder, engine.url, BLOCKS)
        assert finished.returncode == 0, finished.stdout
        yield finished.stdout, folder / "my-gateway"


def test_every_command_of_readme_runs_and_the_gateway_ends_well(ran: tuple[str, Path]) -> None:
    printed, folder = ran
    assert outputs(printed)["end"].strip() == "stopped with 0"
    with LedgerReader(folder / "gateway.ledger") as reader:
        assert [call["outcome"] for call in reader.calls(run="r1")] == ["length", "length", "length"]
        assert reader.verify().fits


SHOWN = [number for number, block in enumerate(BLOCKS) if block.language == "text" and BLOCKS[number - 1].info == "run"]


@pytest.mark.parametrize("number", SHOWN)
def test_what_readme_shows_is_what_its_commands_print(ran: tuple[str, Path], number: int) -> None:
    assert not_printed(BLOCKS[number].text, outputs(ran[0])[str(number - 1)]) == [], ran[0]


def test_the_receipt_on_the_first_screen_is_the_one_that_its_commands_give(ran: tuple[str, Path]) -> None:
    first = next(block for block in BLOCKS if block.language == "text")
    closing = next(number for number, block in enumerate(BLOCKS) if "gateway run close" in block.text and block.info == "run")
    assert "Receipt of run" in first.text
    assert not_printed(first.text, outputs(ran[0])[str(closing)]) == []


def test_nothing_is_shown_that_no_command_prints() -> None:
    assert [number for number, block in enumerate(BLOCKS) if block.language == "text"] == [
        next(n for n, b in enumerate(BLOCKS) if b.language == "text"),
        *SHOWN,
    ]


def test_a_command_that_fails_or_prints_something_else_would_be_seen(mock_process: MockProcess) -> None:
    setting_up = [block for block in BLOCKS if block.language == "toml" or "mkdir" in block.text]
    setting_up.sort(key=lambda block: block.language == "toml")
    wrong = [*setting_up, Block("sh", "serve", "gateway serve\n"), Block("sh", "run", "gateway campaign open c --policy nope\n")]
    with a_folder() as folder:
        assert done(folder, mock_process.url, wrong).returncode != 0
    assert not_printed("QUANTITY  USAGE\nrequests 3\n", "QUANTITY  CHARGE\nrequests 4\n") == ["QUANTITY  USAGE"]


def test_each_shell_block_of_readme_says_how_it_is_tested() -> None:
    assert [block.text for block in BLOCKS if block.language in ("sh", "bash", "shell", "console", "") and (block.language, block.info) not in EXECUTED] == []
    assert [block.info for block in BLOCKS if block.language == "toml"] == ["gateway.toml", "policies/pilot.toml"]


def test_each_make_command_of_readme_is_a_target() -> None:
    targets = set(re.findall(r"^([a-z-]+)[a-z -]*:(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(
        re.findall(r"\bmake ([a-z][a-z-]*)", "".join(block.text for block in BLOCKS if block.info == "make") + " ".join(re.findall(r"`(make .*?)`", README)))
    )
    assert {"run", "test", "demo"} <= named <= targets


def test_make_run_with_an_engine_fronts_it() -> None:
    recipe = subprocess.run(["make", "-n", "run", "ENGINE=http://127.0.0.1:1"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert 'gateway up --engine "http://127.0.0.1:1"' in recipe
