"""Codex: OpenAI Responses, and nothing else. Its hosted search is turned off, for nothing behind the gateway could do it."""

from __future__ import annotations

from dataclasses import replace

from tests.agents.setups.setup import NODE, TASK, Ending, Ran, Setup, files, json_lines

CONFIG = """\
model = "mock"
model_provider = "gateway"
web_search = "disabled"
check_for_update_on_startup = false

[model_providers.gateway]
name = "gateway"
base_url = "@GATEWAY@/v1"
wire_api = "responses"
env_key = "GATEWAY_KEY"

[analytics]
enabled = false

[features]
apps = false
plugins = false
remote_plugins = false
"""


def ending(ran: Ran) -> Ending:
    rows = [row.get("payload", {}) for path in ran.find(".codex/sessions/**/rollout-*.jsonl") for row in json_lines(path.read_text())]
    kinds = [row for row in rows if row.get("type") in ("task_complete", "turn_aborted", "error", "turn_failed")]
    if not kinds:
        return Ending(words="no end", normal=False)
    last = kinds[-1]
    error = last.get("error")
    return Ending(words=f"{last['type']}{' with error' if error else ''}", normal=last["type"] == "task_complete" and not error)


PLAIN = Setup(
    name="codex",
    agent="codex",
    version="0.171.0",
    dialect="openai.responses",
    files={".codex/config.toml": CONFIG},
    env={"GATEWAY_KEY": "@KEY@"},
    command=(f"{NODE}/.bin/codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", TASK),
    shown='codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox "TASK"',
    tool="exec_command",
    arguments=lambda command: {"cmd": command},
    records=lambda ran: files(ran, codex_rollout=".codex/sessions/**/rollout-*.jsonl"),
    ending=ending,
    note='With `web_search = "disabled"` it declares no hosted search.',
)

SETUPS = (
    PLAIN,
    replace(
        PLAIN,
        name="codex-search",
        with_what="its search stripped",
        files={".codex/config.toml": CONFIG.replace('web_search = "disabled"\n', "")},
        policy={"guard": {"strip": ["web_search"]}},
        scenarios=("ok", "cap"),
        note='Without that line it declares `web_search` in every call. The policy then says `[guard] strip = ["web_search"]`, else each call is refused.',
    ),
)
