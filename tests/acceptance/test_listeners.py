"""Where agents and drivers come in: TCP, TLS, a Unix socket alone, and the control plane over TCP with its token; and what each of them does not answer."""

import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme

from gateway.client.control import ControlClient, ControlError
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import chat_once

TOKEN = "t" * 40
CHAT = {"model": "mock", "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}


class UnixHttp(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


def asked(connection: http.client.HTTPConnection, method: str, path: str, key: str, body: Any = None) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request(method, path, json.dumps(body).encode() if body is not None else None, headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def certificate(folder: Path) -> dict[str, str]:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    (folder / "key.pem").write_bytes(issued.private_key_pem.bytes())
    (folder / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return {"tls_cert": str(folder / "cert.pem"), "tls_key": str(folder / "key.pem")}


def test_a_sandbox_without_a_network_needs_just_the_socket(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path / "s"
    with MockProcess() as mock, GatewayProcess(tmp_path, mock.url, settings={"data": {"listen": "none", "socket": str(path)}}) as gateway:
        assert gateway.address == f"unix:{path}"
        run = gateway.opened("pilot", "r1")
        status, body = asked(UnixHttp(str(path)), "POST", "/v1/chat/completions", run.key, CHAT)
        assert (status, json.loads(body)["choices"][0]["finish_reason"]) == (200, "length")
        for closed in ("/v1/status", "/v1/campaigns", "/metrics", "/livez", "/v1/keys", "/health"):
            assert asked(UnixHttp(str(path)), "GET", closed, run.key)[0] == 404, closed
        assert oct(path.stat().st_mode & 0o777) == "0o666"
        shown = subprocess.run(
            [sys.executable, "-m", "gateway", "run", "open", "pilot/r2", "--config", str(gateway.config)], capture_output=True, text=True, timeout=60
        ).stdout
        assert f"# by the Unix socket {path}" in shown
        assert "OPENAI_BASE_URL=http://localhost/v1" in shown
        assert gateway.stop() == 0
    assert not path.exists()


def test_agents_and_drivers_come_in_by_tls(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    settings = {"data": {**tls, "socket": str(tmp_path / "s")}, "control": {"listen": "127.0.0.1:0", "token_env": "CONTROL_TOKEN", **tls}}
    with MockProcess() as mock, GatewayProcess(tmp_path, mock.url, settings=settings, env={"CONTROL_TOKEN": TOKEN}) as gateway:
        assert gateway.address.startswith("https://")
        run = gateway.opened("pilot", "r1")
        trusted = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        status, _ = asked(http.client.HTTPSConnection("127.0.0.1", gateway.port, context=trusted, timeout=30), "POST", "/v1/chat/completions", run.key, CHAT)
        assert status == 200
        assert asked(UnixHttp(str(tmp_path / "s")), "POST", "/v1/chat/completions", run.key, CHAT)[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            asked(http.client.HTTPSConnection("127.0.0.1", gateway.port, timeout=30), "GET", "/v1/models", run.key)
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            asked(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30), "GET", "/v1/models", run.key)

        address = gateway.process.ready["control-tcp"]
        client = ControlClient(address, token=TOKEN, ca_file=tmp_path / "ca.pem")
        assert client.campaign("pilot")["state"] == "open"
        for wrong in ("", "t" * 39, TOKEN + "t", "ü" * 40):
            with pytest.raises(ControlError) as refused:
                ControlClient(address, token=wrong, ca_file=tmp_path / "ca.pem").campaigns()
            assert (refused.value.status, refused.value.code) == (401, "unauthorized")
        assert ControlClient(address, ca_file=tmp_path / "ca.pem").live()
        environment = {**os.environ, "GATEWAY_CONTROL": address, "GATEWAY_TOKEN": TOKEN, "GATEWAY_CA_FILE": str(tmp_path / "ca.pem")}
        listed = subprocess.run([sys.executable, "-m", "gateway", "run", "list", "--json"], capture_output=True, text=True, timeout=60, env=environment)
        assert [row["run"] for row in json.loads(listed.stdout)["runs"]] == ["r1"]
        assert TOKEN not in gateway.process.output


def test_the_two_planes_never_answer_for_each_other(tmp_path: Path) -> None:
    settings = {"control": {"listen": "127.0.0.1:0", "token_env": "CONTROL_TOKEN"}}
    with MockProcess() as mock, GatewayProcess(tmp_path, mock.url, settings=settings, env={"CONTROL_TOKEN": TOKEN}) as gateway:
        run = gateway.opened("pilot", "r1")
        assert chat_once(gateway.port, run.key, **CHAT).status == 200
        host, _, port = gateway.process.ready["control-tcp"].removeprefix("http://").rpartition(":")
        assert asked(http.client.HTTPConnection(host, int(port), timeout=30), "POST", "/v1/chat/completions", TOKEN, CHAT)[0] == 404
        assert asked(http.client.HTTPConnection(host, int(port), timeout=30), "POST", "/v1/chat/completions", run.key, CHAT)[0] == 401
        assert asked(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30), "GET", "/v1/campaigns", TOKEN)[0] == 401
        assert asked(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30), "GET", "/v1/campaigns", run.key)[0] == 404


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"data": {"listen": "none"}}, "agents could come in nowhere"),
        ({"control": {"listen": "127.0.0.1:0"}}, "name the variable that holds its token in control.token_env"),
        ({"control": {"listen": "127.0.0.1:0", "token_env": "NOBODY_SET_THIS"}}, "NOBODY_SET_THIS is not set"),
        ({"control": {"token_env": "HOME"}}, "there is nothing to present it to"),
        ({"data": {"tls_cert": "cert.pem"}}, "a certificate and its key go together; also name data.tls_key"),
        ({"data": {"tls_cert": "none.pem", "tls_key": "none.key"}}, "none.pem is no file"),
        ({"data": {"tls_cert": "gateway.toml", "tls_key": "gateway.toml"}}, "both must be PEM, and belong together"),
        ({"data": {"socket": "/" + "s" * 120}}, "longer than the 107 bytes"),
    ],
)
def test_a_listener_that_can_not_be_is_told_with_its_setting(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    assert words in not_begun(GatewayProcess(tmp_path, "http://127.0.0.1:9", settings=settings))


@pytest.mark.parametrize("table", ["data", "control"])
def test_an_address_that_is_taken_is_told_with_its_setting_and_is_no_fault_of_the_gateway(tmp_path: Path, table: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        more = {"token_env": "CONTROL_TOKEN"} if table == "control" else {}
        gateway = GatewayProcess(tmp_path, "http://127.0.0.1:9", settings={table: {"listen": address, **more}}, env={"CONTROL_TOKEN": TOKEN})
        said = not_begun(gateway, status=5)  # which a service that starts again may find otherwise
        assert f"cause:   {table}.listen: {address}: Address already in use" in said


def not_begun(gateway: GatewayProcess, status: int = 2) -> str:
    """What it says that does not begin: three lines, as of any mistake of a person's."""
    with pytest.raises(AssertionError) as caught:
        gateway.start()
    gateway.close()
    said = str(caught.value)
    assert f"(status {status})" in said and "problem: " in said and "mend: " in said
    assert "Traceback" not in said
    return said
