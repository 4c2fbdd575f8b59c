"""`gateway page` as a process: it reaches a gateway over TCP by a token that it keeps to itself, only lets look, and ends when it is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.conftest import GatewayMaker
from tests.support.mock_process import MockProcess

TOKEN = "t" * 40
ROOT = Path(__file__).parents[2]


@contextmanager
def page_command(*options: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "gateway", "page", *options]
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> Any:
    """Its one document, while it goes on."""
    assert process.stdout is not None
    text = ""
    while True:
        text += process.stdout.readline()
        with suppress(ValueError):
            return json.loads(text)


def test_it_shows_a_gateway_elsewhere_by_a_token_that_the_browser_never_has(gateways: GatewayMaker) -> None:
    control = {"control": {"listen": "127.0.0.1:0", "token_env": "CONTROL_TOKEN"}}
    with MockProcess() as mock:
        gateway = gateways(mock.url, settings=control, env={"CONTROL_TOKEN": TOKEN})
        gateway.opened("pilot", "r1")
        address = gateway.process.ready["control-tcp"]
        with page_command("--json", GATEWAY_CONTROL=address, GATEWAY_TOKEN=TOKEN) as command, httpx.Client(trust_env=False, timeout=20) as browser:
            url = said(command)["page"]
            assert browser.get(address).status_code == 401
            page = browser.get(url)
            assert page.status_code == 200 and "overview.js" in page.text and TOKEN not in page.text + str(page.headers)
            with browser.stream("GET", url + "v1/events") as events:
                first = next(line for line in events.iter_lines() if line.startswith("data: "))
            assert json.loads(first[6:])["runs"][0]["run"] == "r1"
            assert browser.post(url + "v1/campaigns/pilot/halt").status_code == 501
            assert browser.get(url.rsplit("/", 2)[0] + "/v1/overview").status_code == 404
            assert gateway.control.get("/v1/campaigns/pilot")["state"] == "open"
            command.send_signal(signal.SIGINT)
            assert command.wait(15) == 0


def test_where_no_gateway_answers_that_is_said_at_once(tmp_path: Path) -> None:
    with page_command("--socket", str(tmp_path / "none.sock")) as command:
        assert command.wait(30) == 4
        assert command.stderr is not None and "The gateway does not run." in command.stderr.read()
