"""From the agent's namespace the declared APIs answer and nothing else does; beside it the same without the filter, where the same tries succeed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agents.namespaces import PORT
from tests.isolation.three import CONTROL_PORT, ENGINE, ENGINE_PORT, GATEWAY, LISTENERS, METRICS_PORT, OPERATORS, OUTSIDE, Three
from tests.support.gateway_process import GatewayProcess
from tests.support.processes import ReadyProcess

TOKEN = "t" * 40
FORBIDDEN = [
    *("--engine", f"{ENGINE}:{ENGINE_PORT}", "--outside", f"{OUTSIDE}:80", "--outside", f"{ENGINE}:53"),
    *("--outside", f"{OPERATORS}:{CONTROL_PORT}", "--outside", f"{OPERATORS}:{METRICS_PORT}"),
]
CALL = """
import json, sys, urllib.request
body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hello"}]}).encode()
asked = urllib.request.Request(sys.argv[1] + "/v1/chat/completions", body, {"Authorization": "Bearer " + sys.argv[2], "Content-Type": "application/json"})
print(json.load(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=20))["choices"][0]["message"]["content"])
"""


@dataclass(slots=True)
class Rig:
    spaces: Three
    folder: Path
    gateway: GatewayProcess
    key: str

    def tried(self, *words: str, **more: Any) -> tuple[int, dict[str, Any]]:
        return self.spaces.tried(self.folder, "--gateway", f"http://{GATEWAY}:{PORT}", "--key", self.key, *words, **more)

    def calls(self) -> subprocess.CompletedProcess[str]:
        """A call as the agent makes it."""
        command = ["ip", "netns", "exec", self.spaces.agent, "/usr/bin/python3", "-c", CALL, f"http://{GATEWAY}:{PORT}", self.key]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def rig(folder: Path, *, open_: bool) -> Iterator[Rig]:
    settings: dict[str, Any] = {
        "data": {"listen": f"{GATEWAY}:{PORT}", "socket": str(folder / "agents" / "gateway.sock")},
        "control": {"listen": f"{OPERATORS}:{CONTROL_PORT}", "token_env": "TOKEN", "metrics_listen": f"{OPERATORS}:{METRICS_PORT}"},
    }
    (folder / "agents").mkdir(mode=0o755)
    with Three(open_=open_) as spaces:
        started: list[ReadyProcess] = []
        try:
            with spaces.inside(spaces.engine):
                started.append(ReadyProcess([sys.executable, "-m", "gateway", "mock-engine", "--listen", f"{ENGINE}:{ENGINE_PORT}"]))
                started.append(ReadyProcess([sys.executable, "-c", LISTENERS, ENGINE, OUTSIDE]))
            with (
                spaces.inside(),
                GatewayProcess(folder / "gateway", f"http://{ENGINE}:{ENGINE_PORT}", settings=settings, env={"TOKEN": TOKEN}) as gateway,
            ):
                yield Rig(spaces, folder, gateway, gateway.opened("c1", "r1").key)
        finally:
            for process in started:
                process.kill()


@pytest.fixture(scope="module")
def closed(isolation: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("closed"), open_=False) as made:
        yield made


@pytest.fixture(scope="module")
def opened(isolation: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("open"), open_=True) as made:
        yield made


def test_a_call_goes_through_from_the_agents_namespace(closed: Rig) -> None:
    done = closed.calls()
    assert done.returncode == 0 and done.stdout.strip(), done.stderr


def test_nothing_but_the_gateway_is_reached(closed: Rig) -> None:
    """Engine, control plane, metrics, name server, the outside, and every other port of the gateway's host."""
    code, found = closed.tried("--scan", *FORBIDDEN)
    assert (code, found["closed"], found["reached"]) == (0, True, [f"gateway http://{GATEWAY}:{PORT}"])
    kinds = {one["what"] for one in found["tried"]}
    assert {"engine", "outside", "control plane", "DNS", "metadata", "gateway's host", "default route"} <= kinds
    assert sum(one["what"] == "gateway's host" for one in found["tried"]) == 65_534


def test_a_default_route_of_the_agents_own_making_leads_nowhere(closed: Rig) -> None:
    """Root in the agent's namespace names the gateway as its router, and the gateway's host does forward."""
    closed.spaces.agent_route()
    code, found = closed.tried(*FORBIDDEN, user=0)
    assert (code, found["reached"]) == (0, [f"gateway http://{GATEWAY}:{PORT}"])
    (route,) = [one for one in found["tried"] if one["what"] == "default route"]
    assert route["note"] == "there is one; what lies behind it was tried above"
    assert closed.calls().returncode == 0


def test_the_same_tries_succeed_where_nothing_is_filtered(opened: Rig) -> None:
    """The control: the addresses are alive, and the self-test sees it."""
    opened.spaces.agent_route()
    code, found = opened.tried(*FORBIDDEN)
    assert (code, found["closed"]) == (1, False)
    expected = {f"engine {ENGINE}:{ENGINE_PORT}", f"DNS {ENGINE}:53", f"outside {OUTSIDE}:80"}
    expected |= {f"outside {OPERATORS}:{port}" for port in (CONTROL_PORT, METRICS_PORT)}
    assert expected <= set(found["reached"])


def test_a_route_behind_which_nothing_was_tried_is_no_proof(opened: Rig) -> None:
    opened.spaces.agent_route()
    code, found = opened.spaces.tried(opened.folder, "--gateway", f"http://{GATEWAY}:{PORT}", "--allow", f"{ENGINE}:53")
    assert code == 1 and any(one.startswith("default route") for one in found["reached"])


def test_a_sandbox_without_any_network_has_just_the_socket(closed: Rig) -> None:
    alone = f"{closed.spaces.agent}-0"
    subprocess.run(["ip", "netns", "add", alone], check=True)
    try:
        code, found = closed.spaces.tried(closed.folder, "--socket", "/mnt/gateway.sock", *FORBIDDEN, network=alone, keep=str(closed.folder / "agents"))
        assert (code, found["reached"]) == (0, ["gateway /mnt/gateway.sock"]), found
        with_control = closed.folder / "both"
        with_control.mkdir()
        for name, path in (("gateway.sock", closed.folder / "agents/gateway.sock"), ("control", closed.gateway.process.ready["control"].removeprefix("unix:"))):
            os.link(path, with_control / name)
        code, found = closed.spaces.tried(closed.folder, "--socket", "/mnt/gateway.sock", network=alone, keep=str(with_control), user=0)
        assert code == 1 and "local socket /mnt/control" in found["reached"], "the control: a socket that lies there is seen"
    finally:
        subprocess.run(["ip", "netns", "del", alone], check=True)
