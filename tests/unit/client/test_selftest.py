"""The self-test's own judgement, and that its one file runs by itself; what it finds in real sandboxes is in tests/isolation and tests/image."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gateway.client import selftest
from gateway.client.selftest import Asked, Tried

GATEWAY = Tried("gateway", "http://g", True, True, "GET /v1/models answers 200")


def test_only_the_gateway_reached_is_good_and_all_else_is_wrong() -> None:
    closed = Tried("engine", "e:1", False, False, "timed out")
    assert selftest.good([GATEWAY, closed])
    assert not selftest.good([GATEWAY, closed._replace(reached=True)])
    assert not selftest.good([GATEWAY._replace(reached=False), closed])


def test_what_is_reached_is_named_and_what_is_not_is_summed_up() -> None:
    tried = [
        GATEWAY,
        Tried("engine", "e:1", True, False, "a connection was accepted"),
        *(Tried("outside", f"o:{n}", False, False, "timed out") for n in range(9)),
    ]
    assert list(selftest.written(tried)) == [
        "ok     reached: gateway http://g (GET /v1/models answers 200)",
        "WRONG  reached: engine e:1 (a connection was accepted)",
        "ok     not reached: outside o:0, o:1, o:2, o:3 and 5 more (timed out)",
    ]
    assert selftest.document(tried)["closed"] is False


@pytest.mark.parametrize("target", ["engine", "engine:", "engine:port", "http://engine:80", "engine:123456", "::1:80", "en gine:80", ""])
@pytest.mark.parametrize("option", ["--engine", "--outside"])
def test_what_can_not_be_tried_does_not_pass_for_closed(capsys: pytest.CaptureFixture[str], option: str, target: str) -> None:
    with pytest.raises(SystemExit) as ended:
        selftest.main(["--gateway", "http://g:1", option, target])
    assert ended.value.code == 2
    assert "so it can't be tried" in capsys.readouterr().err


@pytest.mark.parametrize("gateway", ["g:8080", "g", "http://", "http://:80", "ftp://g"])
def test_a_gateway_is_named_by_its_url(gateway: str) -> None:
    assert "no http://HOST:PORT" in selftest.slip(Asked(gateway))


def test_every_right_way_to_name_a_target_can_be_tried() -> None:
    targets = ("10.0.0.1:80", "[fd00::1]:443", "engine-1.lan:8080", "localhost:65535")
    assert selftest.slip(Asked("https://[fd00::1]:8080", engines=targets, outside=targets)) == ""
    assert selftest.slip(Asked(socket="/run/agents.sock")) == ""


class Gateway(BaseHTTPRequestHandler):
    leaks = False

    def do_GET(self) -> None:
        status = 200 if self.path == "/v1/models" or (self.leaks and self.path == "/metrics") else 404
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Silent."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Gateway,), {}))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_an_engine_that_answers_and_a_control_plane_on_the_agents_listener_are_seen(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the machine's own ports and sockets out of sight."""
    monkeypatch.setattr(selftest, "_listeners", lambda: iter(()))
    monkeypatch.setattr(selftest, "_socket_files", lambda _asked: [])
    monkeypatch.setattr(selftest, "_servers", list)
    monkeypatch.setattr(selftest, "METADATA", "127.0.0.1:9")
    monkeypatch.setattr(selftest, "PORTS", (9,))
    with socket.create_server(("127.0.0.1", 0)) as engine:
        target = f"127.0.0.1:{engine.getsockname()[1]}"
        wall = ("--outside", "127.0.0.1:9")
        assert run("--gateway", url, *wall) == 0
        assert run("--gateway", url, *wall, "--engine", target) == 1
        assert run("--gateway", url, *wall, "--engine", target, "--allow", target) == 0
        assert run("--gateway", "http://127.0.0.1:9", *wall) == 1
    monkeypatch.setattr(Gateway, "leaks", True)
    found = selftest.selftest(Asked(url, outside=["127.0.0.1:9"]))
    assert [one.target for one in found if one.wrong] == [url + "/metrics"]


def run(*words: str) -> int:
    return selftest.main([*words, "--json"])


def test_the_listening_ports_of_this_namespace_are_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        assert {("127.0.0.1", one.getsockname()[1]), ("::1", other.getsockname()[1])} <= set(selftest._listeners())


def test_a_socket_that_lies_somewhere_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        assert selftest._opens(str(path)).reached
    assert not selftest._opens(str(path)).reached


def test_the_file_runs_by_itself_without_this_project(tmp_path: Path) -> None:
    copy = tmp_path / "selftest.py"
    copy.write_bytes(Path(selftest.__file__).read_bytes())
    command = [sys.executable, "-I", "-S", str(copy), "--gateway", "http://127.0.0.1:9", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
    assert done.returncode == 1 and json.loads(done.stdout)["closed"] is False, done.stderr
