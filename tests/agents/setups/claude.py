"""Claude Code: Anthropic Messages."""

from __future__ import annotations

from tests.agents.setups.setup import NODE, SMALL, TASK, Ending, Ran, Setup, files, json_lines


def ending(ran: Ran) -> Ending:
    results = [row for row in json_lines(ran.stdout) if row.get("type") == "result"]
    rows = [row for path in ran.find(".claude/projects/*/*.jsonl") for row in json_lines(path.read_text())]
    aborted = any(row.get("isAbortedMidStream") for row in rows)
    error = any(row.get("isApiErrorMessage") for row in rows)
    marks = [word for word, there in (("isAbortedMidStream", aborted), ("isApiErrorMessage", error)) if there]
    said = f"result {results[-1].get('subtype')}, is_error {str(bool(results[-1].get('is_error'))).lower()}" if results else "no result"
    return Ending(words=", ".join([said, *marks]), normal=bool(results) and not results[-1].get("is_error") and not marks)


SETUPS = (
    Setup(
        name="claude",
        agent="claude",
        version="2.1.332",
        dialect="anthropic.messages",
        env={
            "ANTHROPIC_BASE_URL": "@GATEWAY@",
            "ANTHROPIC_AUTH_TOKEN": "@KEY@",
            "ANTHROPIC_MODEL": "mock",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": SMALL,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        command=(
            f"{NODE}/@anthropic-ai/claude-code-linux-x64/claude", "-p", TASK,
            "--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose",
        ),
        shown='claude -p "TASK" --dangerously-skip-permissions --output-format stream-json --verbose',
        tool="Bash",
        arguments=lambda command: {"command": command, "description": "Write the file"},
        records=lambda ran: files(ran, claude_session=".claude/projects/*/*.jsonl"),
        ending=ending,
    ),
)  # fmt: skip
