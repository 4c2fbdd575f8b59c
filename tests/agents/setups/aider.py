"""aider: chat completions; one streamed answer that holds the edit, then commit messages, which do not stream. It calls no tools."""

from __future__ import annotations

from tests.agents.setups.setup import PROGRAMS, TASK, Ending, Ran, Setup, files, json_lines

EDIT = "I make the file.\n\nhello.txt\n```\nhi\n```\n"


def ending(ran: Ran) -> Ending:
    """Its exit row says `Completed` whatever happened: an answer that it took has a row `message_send`."""
    events = [row for path in ran.find("analytics.jsonl") for row in json_lines(path.read_text())]
    reasons = [row["properties"].get("reason") for row in events if row.get("event") == "exit"]
    answered = any(row.get("event") == "message_send" for row in events)
    errors = [line for path in ran.find("repo/.aider.chat.history.md") for line in path.read_text().splitlines() if line.startswith("> litellm.")]
    words = [
        f"exit row {reasons[-1]!r}" if reasons else "no exit row",
        *([] if answered else ["no message_send row"]),
        *(["error in its history"] if errors else []),
    ]
    return Ending(words=", ".join(words), normal=bool(reasons) and answered and not errors)


SETUPS = (
    Setup(
        name="aider",
        agent="aider-chat",
        version="0.86.2",
        dialect="openai.chat",
        env={"OPENAI_API_BASE": "@GATEWAY@/v1", "OPENAI_API_KEY": "@KEY@", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        command=(
            f"{PROGRAMS}/aider/bin/python", f"{PROGRAMS}/aider/bin/aider", "--model", "openai/mock", "--yes-always",
            "--no-show-model-warnings", "--no-check-update",
            "--analytics-log", "/home/agent/analytics.jsonl", "--no-analytics",
            "--llm-history-file", "/home/agent/llm-history.txt", "--no-pretty",
            "--message", TASK, "hello.txt",
        ),
        shown='aider --model openai/mock --yes-always --no-show-model-warnings --no-check-update --message "TASK" hello.txt',
        first={"text": EDIT},
        final={"text": "Add hello.txt"},
        calls=3,
        refused=4,  # two commits, each asked of its small and of its main model, which are one: each of these calls is refused once
        cut_call=1,
        tools=False,
        records=lambda ran: files(
            ran, aider_analytics="analytics.jsonl", aider_llm_history="llm-history.txt", aider_chat_history="repo/.aider.chat.history.md"
        ),
        ending=ending,
        wall_s=3,
        note="Its numbers are its own estimates; its commit messages are calls that its record leaves out. After a cap each further call is refused once: "
        "two commits, each asked of its small and of its main model.",
    ),
)  # fmt: skip
