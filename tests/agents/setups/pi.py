"""pi: chat completions, Responses or Messages, by one word in its model file."""

from __future__ import annotations

import json

from tests.agents.setups.setup import NODE, TASK, Ending, Ran, Setup, files, json_lines


def models(api: str, base: str) -> str:
    provider = {"baseUrl": base, "api": api, "apiKey": "$GATEWAY_KEY", "models": [{"id": "mock", "contextWindow": 131_072, "maxTokens": 16_384}]}
    return json.dumps({"providers": {"gateway": provider}}, indent=2) + "\n"


def ending(ran: Ran) -> Ending:
    rows = [row["message"] for path in ran.find(".pi/agent/sessions/*/*.jsonl") for row in json_lines(path.read_text()) if row.get("type") == "message"]
    said = [row for row in rows if row.get("role") == "assistant"]
    if not said:
        return Ending(words="no answer", normal=False)
    reason = said[-1].get("stopReason")
    return Ending(words=f"stopReason {reason}", normal=reason in ("stop", "toolUse", "length"))


def _setup(name: str, dialect: str, api: str, base: str) -> Setup:
    return Setup(
        name=name,
        agent="pi",
        version="1.6.0",
        dialect=dialect,
        files={".pi/agent/models.json": models(api, base)},
        env={"GATEWAY_KEY": "@KEY@"},
        command=(f"{NODE}/.bin/pi", "--provider", "gateway", "--model", "mock", "--mode", "json", "-p", TASK),
        shown='pi --provider gateway --model mock --mode json -p "TASK"',
        records=lambda ran: files(ran, pi_session=".pi/agent/sessions/*/*.jsonl"),
        ending=ending,
        note="The key is `$NAME` of a variable: a bare name would be sent as it is.",
    )


SETUPS = (
    _setup("pi-chat", "openai.chat", "openai-completions", "@GATEWAY@/v1"),
    _setup("pi-responses", "openai.responses", "openai-responses", "@GATEWAY@/v1"),
    _setup("pi-messages", "anthropic.messages", "anthropic-messages", "@GATEWAY@"),
)
