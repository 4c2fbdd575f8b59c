"""Copilot CLI with a provider of one's own: chat completions, Responses or Messages."""

from __future__ import annotations

from tests.agents.setups.setup import NODE, TASK, Ending, Ran, Setup, files, json_lines

STATE = ".copilot/session-state/*/events.jsonl"


def ending(ran: Ran) -> Ending:
    rows = [row for path in ran.find(STATE) for row in json_lines(path.read_text())]
    errors = [row for row in rows if "error" in str(row.get("type"))]
    shutdown = [row["data"].get("shutdownType", row["data"].get("reason")) for row in rows if row.get("type") == "session.shutdown"]
    words = f"shutdown {shutdown[-1]}" if shutdown else "no shutdown row"
    return Ending(words=f"{words}, {errors[-1]['type']}" if errors else words, normal=bool(rows) and not errors)


def _setup(name: str, dialect: str, base: str, kind: str, wire: str) -> Setup:
    env = {
        "COPILOT_PROVIDER_BASE_URL": base,
        "COPILOT_PROVIDER_TYPE": kind,
        "COPILOT_PROVIDER_API_KEY": "@KEY@",
        "COPILOT_MODEL": "mock",
        "COPILOT_OFFLINE": "true",
    }
    return Setup(
        name=name,
        agent="copilot",
        version="1.0.102",
        dialect=dialect,
        env={**env, **({"COPILOT_PROVIDER_WIRE_API": wire} if wire else {})},
        command=(f"{NODE}/@github/copilot-linux-x64/copilot", "--allow-all-tools", "-p", TASK),
        shown='copilot --allow-all-tools -p "TASK"',
        arguments=lambda command: {"command": command, "description": "Write the file", "mode": "sync", "initial_wait": 30},
        records=lambda ran: files(ran, copilot_events=STATE),
        ending=ending,
        wall_s=6,
    )


SETUPS = (
    _setup("copilot-chat", "openai.chat", "@GATEWAY@/v1", "openai", "completions"),
    _setup("copilot-responses", "openai.responses", "@GATEWAY@/v1", "openai", "responses"),
    _setup("copilot-messages", "anthropic.messages", "@GATEWAY@", "anthropic", ""),
)
