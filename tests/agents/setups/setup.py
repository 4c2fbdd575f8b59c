"""What it takes to run one agent in one format: the settings that a user needs, word for word, and how its own record is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TASK = "Create hello.txt containing hi using the shell, then say done."
COMMAND = "echo hi > hello.txt"
FINAL = "done"
BASE = "@GATEWAY@"
"""Stands for the gateway's address, `http://HOST:PORT`."""
KEY = "@KEY@"
"""Stands for the run's key."""
HOME = Path("/home/agent")
PROGRAMS = "/mnt/agents"
NODE = f"{PROGRAMS}/npm/node_modules"
SMALL = "mock-small"
"""The model for an agent's side calls, e.g. titles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the agent's own record says that it ended."""

    words: str
    normal: bool
    """It reads as an end like any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What is left of an agent that ran."""

    home: Path
    exit: int
    stdout: str
    stderr: str

    def find(self, pattern: str) -> list[Path]:
        return sorted(self.home.glob(pattern))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One agent in one format."""

    name: str
    agent: str
    version: str
    dialect: str
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Below the home, with `@GATEWAY@` and `@KEY@` in them."""
    command: tuple[str, ...]
    shown: str
    """The command as a user types it."""
    tool: str = "bash"
    arguments: Callable[[str], dict[str, Any]] = lambda command: {"command": command}
    """Of its shell tool, to run a command."""
    final: Mapping[str, Any] = field(default_factory=lambda: {"text": FINAL})
    """The script of the answer that ends the task."""
    first: Mapping[str, Any] | None = None
    """The script of the first answer, where it is no call of the shell tool."""
    calls: int = 2
    """Of its main model, when all goes well."""
    refused: int = 1
    """At most so many refused calls before it gives up."""
    cut_call: int = 2
    """Which call is cut by a deadline."""
    streams: bool = True
    reasons: bool = True
    """Its format has reasoning."""
    tools: bool = True
    """It calls tools."""
    wall_s: int = 4
    """The deadline of a cut run: after its first call has begun, before the cut one is over."""
    with_what: str = ""
    """What makes it another setup than the agent's plain one."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """What its policy says beyond API and models."""
    scenarios: tuple[str, ...] = ()
    """The only ones that are tried; empty: all that its format has."""
    known_normal: Mapping[str, str] = field(default_factory=dict)
    """Scenario -> why this agent's record is known to read as a normal end though its call was cut."""
    records: Callable[[Ran], dict[str, bytes]]
    """Its own record, by the name it is kept under."""
    ending: Callable[[Ran], Ending]
    note: str = ""
    """What a user should know, for the page."""

    @property
    def title(self) -> str:
        return f"{self.agent} ({self.with_what})" if self.with_what else self.agent


def arguments_text(setup: Setup, command: str) -> str:
    return json.dumps(setup.arguments(command))


def json_lines(text: str) -> list[dict[str, Any]]:
    """Each line that is a JSON object."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def files(ran: Ran, **patterns: str) -> dict[str, bytes]:
    """The newest file of each pattern, under `record.NAME` and its own suffix. `_` in a name stands for `-`."""
    kept = {}
    for name, pattern in patterns.items():
        if found := ran.find(pattern):
            newest = max(found, key=lambda path: path.stat().st_mtime)
            kept[f"record.{name.replace('_', '-')}{newest.suffix}"] = newest.read_bytes()
    return kept
