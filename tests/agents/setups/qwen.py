"""Qwen Code: chat completions."""

from __future__ import annotations

import json

from tests.agents.setups.setup import NODE, TASK, Ending, Ran, Setup, files, json_lines

SETTINGS = json.dumps({"privacy": {"usageStatisticsEnabled": False}, "general": {"disableAutoUpdate": True}}, indent=2) + "\n"


def ending(ran: Ran) -> Ending:
    results = [row for row in json_lines(ran.stdout) if row.get("type") == "result"]
    events = [row.get("systemPayload", {}).get("uiEvent", {}) for path in ran.find(".qwen/projects/*/chats/*.jsonl") for row in json_lines(path.read_text())]
    errors = [event for event in events if str(event.get("event.name", "")).endswith("api_error")]
    said = f"result {results[-1].get('subtype')}, is_error {str(bool(results[-1].get('is_error'))).lower()}" if results else "no result"
    words = f"{said}, {len(errors)} api_error" if errors else said
    return Ending(words=words, normal=bool(results) and not results[-1].get("is_error") and not errors)


SETUPS = (
    Setup(
        name="qwen",
        agent="qwen",
        version="0.24.4",
        dialect="openai.chat",
        files={".qwen/settings.json": SETTINGS},
        env={"OPENAI_BASE_URL": "@GATEWAY@/v1", "OPENAI_API_KEY": "@KEY@", "OPENAI_MODEL": "mock"},
        command=(f"{NODE}/.bin/qwen", "--auth-type", "openai", "--yolo", "--output-format", "stream-json", "-p", TASK),
        shown='qwen --auth-type openai --yolo --output-format stream-json -p "TASK"',
        tool="run_shell_command",
        arguments=lambda command: {"command": command, "is_background": False, "description": "Write the file"},
        records=lambda ran: files(ran, qwen_chat=".qwen/projects/*/chats/*.jsonl", qwen_token_usage=".qwen/usage/token-usage-*.jsonl"),
        ending=ending,
        wall_s=5,
    ),
)
