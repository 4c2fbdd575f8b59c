"""Inspect: chat completions, not streamed, by its provider for any server that speaks them."""

from __future__ import annotations

import json

from tests.agents.setups.setup import PROGRAMS, TASK, Ending, Ran, Setup, files

EVAL = f'''\
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash


@task
def hello():
    return Task(dataset=[Sample(input="{TASK}")], solver=[use_tools(bash()), generate()], sandbox="local")
'''


def ending(ran: Ran) -> Ending:
    found = ran.find("logs/*.json")
    if not found:
        return Ending(words="no log", normal=False)
    log = json.loads(found[0].read_text())
    return Ending(words=f"status {log.get('status')}", normal=log.get("status") == "success")


SETUPS = (
    Setup(
        name="inspect",
        agent="inspect-ai",
        version="0.3.285",
        dialect="openai.chat",
        files={"repo/hello_task.py": EVAL},
        env={"GATEWAY_BASE_URL": "@GATEWAY@/v1", "GATEWAY_API_KEY": "@KEY@"},
        command=(
            f"{PROGRAMS}/inspect/bin/python", f"{PROGRAMS}/inspect/bin/inspect", "eval", "hello_task.py", "--model", "openai-api/gateway/mock",
            "--log-dir", "/home/agent/logs", "--log-format", "json", "--display", "plain",
        ),
        shown="inspect eval TASK.py --model openai-api/gateway/mock --log-format json",
        arguments=lambda command: {"command": f"cd /home/agent/repo && {command}"},
        records=lambda ran: files(ran, inspect_log="logs/*.json"),
        ending=ending,
        streams=False,
        wall_s=3,
        note="The middle word of the model's name gives the variables theirs: GATEWAY_BASE_URL, GATEWAY_API_KEY.",
    ),
)  # fmt: skip
