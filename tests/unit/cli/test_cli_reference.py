"""docs/cli.md names every command, option, choice and exit code that the command line has, and none that it has not."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from gateway.cli.exits import MEANINGS
from tests.unit.cli.conftest import commands

REFERENCE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
SECTIONS = dict(re.findall(r"^## gateway ([a-z -]+)\n(.*?)(?=^## |\Z)", REFERENCE, re.MULTILINE | re.DOTALL))
SHARED = REFERENCE.partition("\n## gateway ")[0]
SHARED_OPTIONS = {"--socket", "--config", "--timeout", "--json"}
IDS = [" ".join(words) for words, _ in commands()]


def options(command: click.Command) -> set[str]:
    return {name for parameter in command.params if isinstance(parameter, click.Option) for name in parameter.opts}


def test_every_command_has_its_section_and_every_section_its_command() -> None:
    assert sorted(SECTIONS) == sorted(IDS)


@pytest.mark.parametrize(("words", "command"), commands(), ids=IDS)
def test_a_section_names_each_option_and_no_other(words: tuple[str, ...], command: click.Command) -> None:
    section = SECTIONS[" ".join(words)]
    shown = set(re.findall(r"^\| `(--[a-z-]+)", section, re.MULTILINE))
    own = options(command) - SHARED_OPTIONS
    assert own <= shown, "in the table of its options"
    assert shown <= options(command)
    assert all(f"{name}`" in SHARED or f"{name} " in SHARED for name in options(command) & SHARED_OPTIONS)
    synopsis = re.search(r"^    gateway .*$", section, re.MULTILINE)
    assert synopsis and all(name in synopsis[0] for name in own)
    assert set(re.findall(r"--[a-z-]+", synopsis[0])) <= options(command)


@pytest.mark.parametrize(("words", "command"), commands(), ids=IDS)
def test_a_section_names_each_choice(words: tuple[str, ...], command: click.Command) -> None:
    choices = [choice for parameter in command.params if isinstance(parameter.type, click.Choice) for choice in parameter.type.choices]
    assert [choice for choice in choices if f"`{choice}`" not in SECTIONS[" ".join(words)]] == []


def test_the_table_of_exit_codes_is_the_codes() -> None:
    shown = dict(re.findall(r"^\| (\d+) \| (.*?) \|$", SHARED, re.MULTILINE))
    assert shown == {str(code.value): meaning for code, meaning in MEANINGS.items()}


@pytest.mark.parametrize(("words", "command"), commands(), ids=IDS)
def test_every_option_and_command_says_what_it_is_for(words: tuple[str, ...], command: click.Command) -> None:
    assert command.help
    assert [parameter.name for parameter in command.params if isinstance(parameter, click.Option) and not parameter.help] == []


def test_links_within_the_page_lead_somewhere() -> None:
    headings = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", REFERENCE, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]*)\)", REFERENCE)) <= headings
