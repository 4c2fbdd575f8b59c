"""What docs/cli.md shows of a command's output has the lines and columns that the command prints: the story of its examples, told once again."""

from __future__ import annotations

import re

import pytest

from gateway.accounting.usage import Outcome, Source, Usage
from tests.unit.cli.conftest import Gateway, House
from tests.unit.cli.test_cli_reference import SECTIONS


def example(command: str) -> str:
    found = re.search(r"^```\n(?:\$ .*\n)?(.*?)^```", SECTIONS[command], re.MULTILINE | re.DOTALL)
    assert found, command
    return found[1]


def shape(text: str) -> list[str]:
    """Names of facts and heads of tables, in order; values and widths left out."""
    lines = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    facts = [cells[0] if line.startswith("  ") and cells[0].islower() else "" for line, cells in zip(text.splitlines(), lines, strict=True)]
    heads = [" | ".join(cells) if "".join(cells).isupper() and len(cells) > 1 else "" for cells in lines]
    return [found for pair in zip(facts, heads, strict=True) for found in pair if found and not found.startswith("gateway ")]


@pytest.fixture
def told(gateway: Gateway, house: House) -> dict[str, str]:
    """Command to what it printed."""
    typed: dict[str, tuple[str, ...]] = {
        "policy check": ("policy", "check", str(house.policies / "pilot.toml")),
        "policy show": ("policy", "show", str(house.policies / "pilot.toml"), "--effective"),
        "policy reload": ("policy", "reload"),
        "campaign open": ("campaign", "open", "pilot-7", "--policy", "pilot", "--planned", "2"),
        "run open": ("run", "open", "pilot-7/r1", "--task", "fix-parser", "--label", "engineering"),
        "campaign list": ("campaign", "list"),
        "campaign show": ("campaign", "show", "pilot-7"),
        "run list": ("run", "list"),
        "run show": ("run", "show", "r1"),
        "run budget": ("run", "budget", "r1", "--lane", "background"),
        "usage": ("usage",),
        "explain": ("explain", "call-a"),
        "correct": ("correct", "call-a", "--set", "output_tokens=9", "--why", "seen"),
        "ledger clock": ("ledger", "clock"),
        "run close": ("run", "close", "r1", "--exit", "0", "--judge", "pass", "--turn-end", "completed"),
    }
    printed = {}
    for name, arguments in typed.items():
        printed[name] = gateway(*arguments).stdout
        if name == "run open":
            house.call("pilot-7", "r1", "call-a", Usage(input_tokens=1234, output_tokens=5, cached_tokens=0))
            house.call("pilot-7", "r1", "call-b", Usage(input_tokens=1301), Source.UNKNOWN, Outcome.ENGINE_DIED)
    return printed


def test_each_example_has_the_lines_and_columns_that_its_command_prints(told: dict[str, str]) -> None:
    assert all(told.values())
    shown = {command: shape(example(command)) for command in told}
    shown["explain"].remove("LIMIT THAT | NAME | CEILING | SETTLED | RESERVED | ASKED | RESETS AT")  # its example is of a call that a limit clamped
    assert shown == {command: shape(printed) for command, printed in told.items()}


def test_a_line_that_is_no_longer_printed_would_be_seen() -> None:
    assert shape("Run r1\n  state  open\n\nLIMIT  LEFT\nrun.requests  8\n") == ["state", "LIMIT | LEFT"] != shape("Run r1\n  state  open\n")
