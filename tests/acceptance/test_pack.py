"""A pack of a campaign that a gateway is serving: checked by itself, and searched for what may not be in it."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import chat_once

PROMPT, ANSWER, TOOL = "the prompt nobody may keep", "the answer nobody may keep", "the tool's description nobody may keep"


def test_a_served_campaign_is_packed_and_holds_no_prompt_no_answer_and_no_secret(tmp_path: Path):
    script = {"text": ANSWER}
    with MockProcess(script=script) as mock, GatewayProcess(tmp_path, mock.url, policy={"run": {"requests": 3}}) as gateway:
        keys = []
        for run, label in (("r1", "engineering"), ("r2", "production")):
            opened = gateway.opened("pilot", run, label=label)
            keys.append(opened.key)
            for stream in (False, True, False, True):
                tools = [{"type": "function", "function": {"name": "bash", "description": TOOL, "parameters": {}}}]
                chat_once(gateway.port, opened.key, max_tokens=50, stream=stream, messages=[{"role": "user", "content": PROMPT}], tools=tools)
            if run == "r1":
                gateway.control.close_run(opened, {"exit": 0, "turn_end": "completed"})
        command = [sys.executable, "-m", "gateway", "export", "pilot", "--out", str(tmp_path / "pack"), "--ledger", str(gateway.ledger), "--json"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    told = json.loads(answer.stdout)
    assert (told["calls"], told["runs"]) == (6, 2)
    checked = subprocess.run([sys.executable, "-I", "-S", str(tmp_path / "pack" / "check.py")], capture_output=True, text=True, timeout=60, cwd="/", env={})
    assert checked.stdout == "fits: 6 calls of 2 runs, made again from their chains\n", checked
    assert len((tmp_path / "pack" / "refusals.jsonl").read_text().splitlines()) == 2
    everything = b"".join(path.read_bytes() for path in (tmp_path / "pack").rglob("*") if path.is_file())
    assert b"pilot" in everything
    for hidden in (PROMPT, ANSWER, TOOL, *keys):
        assert hidden.encode() not in everything, hidden
