"""The command line as a person uses it: processes, pipes, a pasted line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.conftest import GatewayMaker
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import chat_once

ROOT = Path(__file__).parents[2]
ASK = """
import os
from openai import OpenAI
answer = OpenAI(max_retries=0).chat.completions.create(model="mock", messages=[{"role": "user", "content": "hello"}])
print(answer.usage.prompt_tokens, answer.usage.completion_tokens)
"""


def typed(folder: Path, *words: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-m", "gateway", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout_s)


def opened(gateway: GatewayProcess) -> str:
    assert typed(gateway.folder, "campaign", "open", "pilot", "--policy", "test").returncode == 0
    return typed(gateway.folder, "run", "open", "pilot/r1").stdout


def test_the_printed_line_is_all_that_a_client_needs_and_the_receipt_tells_what_it_used(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    gateway = gateways(mock_process.url)
    printed = opened(gateway)
    (line,) = re.findall(r"^export .*$", printed, re.MULTILINE)
    script = f"{line}\n{sys.executable} -c '{ASK}'"
    asked = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    prompt, output = asked.stdout.split()
    closed = typed(gateway.folder, "run", "close", "r1", "--exit", "0", "--json")
    assert closed.returncode == 0, closed.stderr
    usage = json.loads(closed.stdout)["receipt"]["totals"]["usage"]
    assert (usage["input_tokens"]["sum"], usage["output_tokens"]["sum"]) == (int(prompt), int(output))
    kept = gateway.folder / "receipt.json"
    kept.write_text(typed(gateway.folder, "receipt", "r1", "--json").stdout)
    assert typed(gateway.folder, "ledger", "verify", "--against", str(kept)).returncode == 0


def test_serve_with_json_writes_one_document_and_ends_with_zero_on_sigterm(tmp_path: Path, mock_process: MockProcess) -> None:
    gateway = GatewayProcess(tmp_path / "gateway", mock_process.url)  # its files; the process is started below
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "gateway", "serve", "--config", str(gateway.config), "--json"]
    with subprocess.Popen(line, cwd=gateway.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())["ready"]
            assert ready["data"].startswith("http://127.0.0.1:") and Path(ready["control"]).is_socket()
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            assert process.stdout.read() == ""
        finally:
            process.kill()
            gateway.close()


def test_a_ledger_that_another_gateway_serves_is_refused_with_five_and_says_who_holds_it(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    gateway = gateways(mock_process.url)
    second = gateway.folder / "second.toml"
    second.write_text(re.sub(r'socket = ".*"', 'socket = "second.sock"', gateway.config.read_text()))
    done = typed(gateway.folder, "serve", "--config", str(second))
    assert done.returncode == 5, done.stderr
    assert str(gateway.process.pid) in done.stderr


def test_a_rebuilt_request_is_held_against_the_one_that_was_sent(gateways: GatewayMaker, mock_process: MockProcess) -> None:
    gateway = gateways(mock_process.url)
    run = gateway.opened("pilot", "r1")
    body = {"model": "mock", "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}
    answer = chat_once(gateway.port, run.key, **body)
    call = answer.headers["x-request-id"]
    log = gateway.folder / "rebuilt.json"
    for text, exit_status, words in (
        (json.dumps(body, indent=1), 0, "the agent sent the same JSON"),
        (json.dumps({**body, "max_tokens": 6}), 1, "this is another request"),
    ):
        log.write_text(text)
        told = typed(gateway.folder, "explain", call, "--body", str(log))
        assert (told.returncode, words in told.stdout) == (exit_status, True), told
    assert "max_tokens: 5 on record, 6 in this one" in told.stdout
