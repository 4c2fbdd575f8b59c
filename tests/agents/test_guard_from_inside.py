"""The ways out, tried from where an agent is: the gateway answers, and nothing else does. Beside each try that must fail is one that shows it could succeed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agents import namespaces
from tests.agents.namespaces import AGENT, GATEWAY, PORT, Namespaces
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess

OUTSIDE = ("192.0.2.1", "198.51.100.7", "169.254.169.254", "8.8.8.8")
"""Addresses for documentation, of clouds' metadata, and of a public name server."""
PYTHON = "/usr/bin/python3"
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).close()"
UNIX = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
SCAN = """
import socket, sys
for port in range(1, 65536):
    tried = socket.socket()
    tried.settimeout(0.05)
    if tried.connect_ex((sys.argv[1], port)) == 0:
        print(port)
    tried.close()
"""
RESOLVE = "import socket, sys; socket.getaddrinfo(sys.argv[1], 80)"
HTTP = """
import json, sys, urllib.error, urllib.request
url, key, body = sys.argv[1:]
asked = urllib.request.Request(url, body.encode() or None, {"Authorization": "Bearer " + key, "Content-Type": "application/json"})
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    answer = opener.open(asked, timeout=10)
except urllib.error.HTTPError as error:
    answer = error
print(json.dumps([answer.status, answer.read().decode()]))
"""


@dataclass(slots=True)
class Inside:
    """What an agent can try."""

    spaces: Namespaces
    home: Path
    gateway: GatewayProcess
    engine: MockProcess
    key: str

    def python(self, code: str, *arguments: str, user: int = namespaces.NOBODY) -> subprocess.CompletedProcess[str]:
        command = self.spaces.command(
            self.home, None, [PYTHON, "-c", code, *arguments], {"PATH": "/usr/bin:/bin", "RES_OPTIONS": "timeout:1 attempts:1"}, user=user
        )
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def http(self, path: str, body: object = "", key: str | None = None) -> tuple[int, str]:
        text = json.dumps(body) if body else ""
        done = self.python(HTTP, f"http://{GATEWAY}:{PORT}{path}", self.key if key is None else key, text)
        assert done.returncode == 0, done.stderr
        status, answer = json.loads(done.stdout)
        return status, answer

    def connects(self, address: str, port: int) -> bool:
        return self.python(CONNECT, address, str(port)).returncode == 0


@pytest.fixture(scope="module")
def inside(isolation: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    folder = tmp_path_factory.mktemp("inside")
    (folder / "home/repo").mkdir(parents=True)
    settings: dict[str, Any] = {"data": {"listen": f"{GATEWAY}:{PORT}"}}
    with Namespaces() as spaces, spaces.inside(), MockProcess() as engine, GatewayProcess(folder / "gateway", engine.url, settings=settings) as gateway:
        yield Inside(spaces, folder / "home", gateway, engine, gateway.opened("c1", "r1").key)


BODY = {"model": "mock", "messages": [{"role": "user", "content": "hello there"}]}


def test_the_gateway_answers_a_call_from_inside(inside: Inside) -> None:
    status, answer = inside.http("/v1/chat/completions", BODY)
    assert status == 200 and json.loads(answer)["choices"]
    assert inside.connects(GATEWAY, PORT), "the control of all that is refused below"


def test_the_engines_address_is_not_reached(inside: Inside) -> None:
    port = int(inside.engine.url.rpartition(":")[2])
    for address in ("127.0.0.1", GATEWAY, AGENT):
        assert not inside.connects(address, port), address
    assert inside.python(CONNECT, "127.0.0.1", str(port)).stderr
    with inside.spaces.inside():
        subprocess.run([PYTHON, "-c", CONNECT, "127.0.0.1", str(port)], check=True, timeout=10)


def test_no_other_port_of_the_gateways_side_is_open(inside: Inside) -> None:
    done = inside.python(SCAN, GATEWAY)
    assert done.returncode == 0 and done.stdout.split() == [str(PORT)], done


@pytest.mark.parametrize("address", OUTSIDE)
def test_no_address_outside_is_reached(inside: Inside, address: str) -> None:
    for port in (53, 80, 443):
        assert not inside.connects(address, port)


def test_a_route_of_its_own_making_leads_nowhere(inside: Inside) -> None:
    """Even root in that namespace, with the gateway as its router: nothing there forwards."""
    route = "import subprocess, sys; subprocess.run(['ip', 'route', 'replace', 'default', 'via', sys.argv[1]], check=True)"
    made = inside.python(route, GATEWAY, user=0)
    assert made.returncode == 0, made.stderr
    for address in OUTSIDE:
        assert not inside.connects(address, 443), address
    assert inside.connects(GATEWAY, PORT)


def test_an_agent_cannot_make_a_route(inside: Inside) -> None:
    route = "import subprocess, sys; sys.exit(subprocess.run(['ip', 'route', 'add', '198.51.100.0/24', 'via', sys.argv[1]]).returncode)"
    assert inside.python(route, GATEWAY).returncode != 0


def test_no_name_is_resolved(inside: Inside) -> None:
    for name in ("example.com", "localhost.example.org", "metadata.google.internal"):
        assert inside.python(RESOLVE, name).returncode != 0, name
    assert inside.python(RESOLVE, "localhost").returncode == 0, "the control: what needs no server is resolved"


def test_the_control_socket_is_not_opened(inside: Inside) -> None:
    socket = inside.gateway.process.ready["control"].removeprefix("unix:")
    refused = inside.python(UNIX, socket)
    assert refused.returncode != 0 and "PermissionError" in refused.stderr, refused.stderr
    assert inside.python(UNIX, socket, user=0).returncode == 0, "the control: who may, can"


def test_the_control_planes_paths_and_the_engines_own_are_not_there(inside: Inside) -> None:
    paths = (
        "/v1/campaigns",
        "/v1/keys",
        "/v1/usage",
        "/metrics",
        "/livez",
        "/slots",
        "/props",
        "/health",
        "/mock/log",
        "/api/chat",
        "/v1/responses",
        "/completion",
    )
    before = len(inside.engine.log())
    for path in paths:
        status, answer = inside.http(path)
        assert status == 404, (path, status, answer)
        assert "127.0.0.1" not in answer and "mock-engine" not in answer
    seen = [one["path"] for one in inside.engine.log()[before:]]
    assert not set(paths) - {"/health", "/props"} & set(seen), seen


def test_a_key_that_was_not_given_out_opens_nothing(inside: Inside) -> None:
    before = len(inside.engine.calls())
    for key in ("", "gw-made-up", inside.key[:-1], inside.key + "x"):
        assert inside.http("/v1/chat/completions", BODY, key=key)[0] == 401
    assert len(inside.engine.calls()) == before


@pytest.mark.parametrize(
    "more",
    [
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://192.0.2.1/x.png"}}]}]},
        {"web_search_options": {}},
        {"tools": [{"type": "web_search"}]},
        {"lora": [{"id": 0, "scale": 1.0}]},
        {"id_slot": 1},
        {"store": True},
    ],
    ids=["remote picture", "web search", "hosted tool", "adapter", "slot", "store"],
)
def test_the_engine_is_not_made_to_act(inside: Inside, more: dict[str, Any]) -> None:
    before = len(inside.engine.calls())
    status, answer = inside.http("/v1/chat/completions", {**BODY, **more})
    assert status == 400 and json.loads(answer)["error"]["code"] == "not_allowed", answer
    assert len(inside.engine.calls()) == before


def test_nothing_of_the_gateways_files_is_read(inside: Inside) -> None:
    read = "import sys; open(sys.argv[1], 'rb').read(1)"
    for path in (inside.gateway.ledger, inside.gateway.config, Path(f"{inside.gateway.ledger}.secret")):
        assert inside.python(read, str(path)).returncode != 0, path
        assert inside.python(read, str(path), user=0).returncode == 0, "the control: who may, can"
