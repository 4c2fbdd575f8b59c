"""Which ledger a command opens: the one named by --ledger, by --config, the running gateway's, that of ./gateway.toml, the usual one; in that order."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli.exits import Exit
from gateway.cli.reaching import Reach
from gateway.cli.root import root
from gateway.ledger.backup import back_up
from tests.unit.cli.conftest import House


@pytest.fixture
def here(house: House, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, where nothing lies and no gateway is known."""
    folder = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(folder)
    for name in ("GATEWAY_SOCKET", "GATEWAY_CONTROL", "GATEWAY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return folder


def verified(*options: object) -> Result:
    return CliRunner().invoke(root, ["ledger", "verify", "--json", *map(str, options)])


def chosen(*options: object) -> str:
    done = verified(*options)
    assert done.exit_code == 0, done.output
    return str(json.loads(done.stdout)["ledger"])


def error(*options: object) -> dict[str, object]:
    done = verified(*options)
    assert done.exit_code != 0, done.output
    return dict(json.loads(done.stdout)["error"])


def copied(house: House, path: Path) -> Path:
    back_up(house.ledger_path, path)
    return path


def settings(folder: Path, ledger: str, control: Path) -> Path:
    path = folder / "gateway.toml"
    path.write_text(
        f'[control]\nsocket = "{control}"\n[ledger]\npath = "{ledger}"\n[upstreams.u]\naddress = "http://127.0.0.1:1"\nmodels = {{ small = "small" }}\n'
    )
    return path


def test_what_is_named_comes_first_then_the_running_gateway_then_what_lies_here(
    house: House, here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody, there = here / "nobody", tmp_path_factory.mktemp("there")
    assert error()["code"] == "no_ledger"
    usual = copied(house, here / "gateway.ledger")
    assert chosen() == usual.name
    named_here = copied(house, here / "named.ledger")
    settings(here, named_here.name, nobody)
    assert chosen() == str(named_here)
    settings(here, named_here.name, house.socket)
    assert chosen() == str(house.ledger_path)
    settings(here, named_here.name, nobody)
    monkeypatch.setenv("GATEWAY_SOCKET", str(house.socket))
    assert chosen() == str(house.ledger_path)
    named_there = copied(house, there / "there.ledger")
    config = settings(there, named_there.name, house.socket)
    assert chosen("--config", config) == str(named_there)
    assert chosen("--config", config, "--ledger", usual) == str(usual)
    monkeypatch.delenv("GATEWAY_SOCKET")
    assert chosen("--socket", house.socket) == str(house.ledger_path)


def test_a_line_says_which_file_it_is_and_why_where_it_was_not_named(house: House, here: Path) -> None:
    copied(house, here / "gateway.ledger")
    assert verified("--socket", house.socket).stderr == f"ledger: {house.ledger_path} (the gateway at {house.socket} writes it)\n"
    assert verified().stderr == "ledger: gateway.ledger (no gateway answered at gateway.sock)\n"
    assert verified("--ledger", "gateway.ledger").stderr == ""


def test_a_gateway_that_was_named_and_is_not_there_is_no_reason_to_read_another_ledger(house: House, here: Path) -> None:
    copied(house, here / "gateway.ledger")
    told = error("--socket", here / "nobody")
    assert told["exit"] == Exit.UNREACHABLE and "--ledger FILE" in str(told["mend"])


def test_where_nothing_listens_on_the_socket_of_the_environment_what_lies_here_is_read(house: House, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied(house, here / "gateway.ledger")
    monkeypatch.setenv("GATEWAY_SOCKET", str(here / "nobody"))
    assert chosen() == "gateway.ledger"


def test_a_gateway_that_does_not_answer_is_waited_for_no_longer_than_said(house: House, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied(house, here / "its.ledger")
    silent_path = house.socket.with_name("silent")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(silent_path))
        silent.listen()
        settings(here, "its.ledger", silent_path)
        assert chosen("--timeout", 0.2) == str(here / "its.ledger")  # the file that names the socket names the ledger too
        monkeypatch.setenv("GATEWAY_SOCKET", str(silent_path))
        assert error("--timeout", 0.2)["exit"] == Exit.UNREACHABLE


def test_a_ledger_that_the_gateway_writes_where_this_machine_has_none_is_a_clear_error(house: House, here: Path) -> None:
    copied(house, here / "gateway.ledger")
    house.ledger_path.rename(house.ledger_path.with_name("moved"))
    told = error("--socket", house.socket)
    assert told["code"] == "no_ledger" and str(house.ledger_path) in str(told["cause"])
    house.ledger_path.with_name("moved").rename(house.ledger_path)


Answering = Callable[[int, object], int]


@pytest.fixture
def answering() -> Iterator[Answering]:
    """`answering(status, document)`: a control plane over TCP that says that to everything; its port."""
    servers: list[ThreadingHTTPServer] = []

    def start(status: int, document: object) -> int:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

            def log_message(self, *_: object) -> None:
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return servers[-1].server_port

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_gateway_over_tcp_is_believed_on_this_machine_alone(house: House, here: Path, answering: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    port = answering(200, {"ledger": str(house.ledger_path)})
    monkeypatch.setenv("GATEWAY_CONTROL", f"http://127.0.0.1:{port}")
    assert chosen() == str(house.ledger_path)
    monkeypatch.setenv("GATEWAY_CONTROL", f"http://0.0.0.0:{port}")  # leads here, but that is not to be seen from it
    assert error()["code"] == "no_ledger"


@pytest.mark.parametrize("document", [{"ledger": "gateway.ledger"}, {}], ids=["relative", "none"])
def test_a_path_that_does_not_say_where_it_begins_is_not_taken_for_one_here(
    document: object, house: House, here: Path, answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(house, here / "gateway.ledger")
    monkeypatch.setenv("GATEWAY_CONTROL", f"http://127.0.0.1:{answering(200, document)}")
    assert error()["code"] == "no_ledger"


def test_an_error_of_the_gateway_is_shown_and_no_other_ledger_read(house: House, here: Path, answering: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    copied(house, here / "gateway.ledger")
    refused = {"error": {"code": "unauthorized", "problem": "No.", "cause": "The token is wrong.", "mend": "Set it."}}
    monkeypatch.setenv("GATEWAY_CONTROL", f"http://127.0.0.1:{answering(401, refused)}")
    told = error()
    assert (told["code"], told["exit"], told["mend"]) == ("unauthorized", Exit.REFUSED, "Set it. Or name the file: --ledger FILE.")


@pytest.mark.parametrize(
    ("address", "elsewhere"),
    [
        ("", False),
        ("https://localhost:8443", False),
        ("http://127.0.0.2:80", False),
        ("http://[::1]:80", False),
        ("https://10.0.0.7:8443", True),
        ("https://gateway.example:8443", True),
    ],
)
def test_whether_a_gateway_is_elsewhere_is_told_by_its_address(address: str, elsewhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_CONTROL", address)
    assert Reach(socket=None, config=None, timeout_s=None).is_elsewhere() is elsewhere
    assert not Reach(socket=Path("control"), config=None, timeout_s=None).is_elsewhere()
