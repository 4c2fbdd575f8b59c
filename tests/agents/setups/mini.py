"""mini-swe-agent: chat completions, not streamed; it retries everything but 401 and 404."""

from __future__ import annotations

import json

from tests.agents.setups.setup import PROGRAMS, TASK, Ending, Ran, Setup, files

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def ending(ran: Ran) -> Ending:
    found = ran.find("traj.json")
    if not found:
        return Ending(words="no trajectory", normal=False)
    status = json.loads(found[0].read_text()).get("info", {}).get("exit_status")
    return Ending(words=f"exit_status {status}", normal=status == "Submitted")


SETUPS = (
    Setup(
        name="mini",
        agent="mini-swe-agent",
        version="2.4.6",
        dialect="openai.chat",
        env={
            "OPENAI_API_BASE": "@GATEWAY@/v1",
            "OPENAI_API_KEY": "@KEY@",
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        command=(
            f"{PROGRAMS}/mini/bin/python",
            f"{PROGRAMS}/mini/bin/mini",
            "-m",
            "openai/mock",
            "-t",
            TASK,
            "--yolo",
            "--exit-immediately",
            "-o",
            "/home/agent/traj.json",
        ),
        shown='mini -m openai/mock -t "TASK" --yolo --exit-immediately -o traj.json',
        final={"tool_calls": [{"name": "bash", "arguments": json.dumps({"command": SUBMIT})}]},
        records=lambda ran: files(ran, mini_trajectory="traj.json"),
        ending=ending,
        streams=False,
        wall_s=3,
        note="litellm 1.107.0 is not to be used.",
    ),
)
