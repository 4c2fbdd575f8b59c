"""OpenCode: chat completions, Responses or Messages, by the package that its provider names; all three come with it."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from tests.agents.setups.setup import NODE, SMALL, TASK, Ending, Ran, Setup
from tests.agents.shortening import shortened_json

TABLES = ("session", "message", "part")
DATABASE = ".local/share/opencode/opencode.db"


def config(package: str) -> str:
    models = {name: {"limit": {"context": 131_072, "output": 16_384}} for name in ("mock", SMALL)}
    provider = {"npm": package, "options": {"baseURL": "@GATEWAY@/v1", "apiKey": "{env:GATEWAY_KEY}"}, "models": models}
    whole = {
        "$schema": "https://opencode.ai/config.json",
        "provider": {"gateway": provider},
        "model": "gateway/mock",
        "small_model": f"gateway/{SMALL}",
        "permission": "allow",
        "autoupdate": False,
        "share": "disabled",
    }
    return json.dumps(whole, indent=2) + "\n"


def messages(database: Path) -> list[dict[str, Any]]:
    connection = sqlite3.connect(database)
    found = [json.loads(data) for (data,) in connection.execute("SELECT data FROM message ORDER BY rowid")]
    connection.close()
    return found


def smaller(database: Path) -> bytes:
    """The tables that speak of requests, in a database of their own, with strings cut short."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "opencode.db"
        source, target = sqlite3.connect(database), sqlite3.connect(path)
        for table in TABLES:
            target.execute(source.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone()[0])
            for row in source.execute(f"SELECT * FROM {table} ORDER BY rowid"):
                values = [shortened_json(value) if isinstance(value, str) else value for value in row]
                target.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
        target.commit()
        source.close()
        target.close()
        return path.read_bytes()


def records(ran: Ran) -> dict[str, bytes]:
    return {"record.opencode.db": smaller(ran.home / DATABASE)} if (ran.home / DATABASE).exists() else {}


def ending(ran: Ran) -> Ending:
    if not (ran.home / DATABASE).exists():
        return Ending(words="no record", normal=False)
    said = [row for row in messages(ran.home / DATABASE) if row.get("role") == "assistant"]
    if not said:
        return Ending(words="no answer", normal=False)
    last = said[-1]
    error = last.get("error")
    words = f"error {error.get('name')}" if isinstance(error, dict) else f"finish {last.get('finish', 'absent')}"
    return Ending(words=words, normal=not error and last.get("finish") in ("stop", "length"))


def _setup(name: str, dialect: str, package: str) -> Setup:
    return Setup(
        name=name,
        agent="opencode",
        version="1.18.33",
        dialect=dialect,
        files={".config/opencode/opencode.json": config(package)},
        env={"GATEWAY_KEY": "@KEY@", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        command=(f"{NODE}/opencode-linux-x64/bin/opencode", "run", "--model", "gateway/mock", TASK),
        shown='opencode run --model gateway/mock "TASK"',
        arguments=lambda command: {"command": command, "description": "Write the file"},
        records=records,
        ending=ending,
        wall_s=12,
        note="Its title is a call of its own, on `small_model`, and stands in no record of its own.",
    )


SETUPS = (
    _setup("opencode-chat", "openai.chat", "@ai-sdk/openai-compatible"),
    _setup("opencode-responses", "openai.responses", "@ai-sdk/openai"),
    _setup("opencode-messages", "anthropic.messages", "@ai-sdk/anthropic"),
)
