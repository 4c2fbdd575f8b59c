"""nginx and HAProxy as processes in front of a gateway, with the settings that docs/operating.md gives, and a log of what each took for a request."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

DOCUMENT = Path(__file__).parents[2] / "docs" / "operating.md"


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as the peer saw it."""

    line: str
    status: int
    forwarded: bool
    answered: bool
    """By the gateway, to the end."""


class Peer:
    """On `port`, with the gateway behind it."""

    name: ClassVar[str]
    binary: ClassVar[str]

    def __init__(self, folder: Path, gateway_port: int) -> None:
        self.folder = folder
        self.port = _free_port()
        self.log = folder / "requests.log"
        self.log.touch()
        self._errors = folder / "errors.log"
        config = folder / "peer.conf"
        config.write_text(self.config(gateway_port))
        with self.log.open("ab") as log, self._errors.open("ab") as errors:
            self._process = subprocess.Popen(self.command(config), stdout=log, stderr=errors, stdin=subprocess.DEVNULL, cwd=folder)

    @classmethod
    def missing(cls) -> str:
        return "" if shutil.which(cls.binary, path="/usr/sbin:/usr/local/sbin:/usr/bin:/bin") else f"{cls.binary} is not installed"

    def config(self, gateway_port: int) -> str:
        raise NotImplementedError

    def command(self, config: Path) -> list[str]:
        raise NotImplementedError

    def read(self, line: str) -> Seen | None:
        raise NotImplementedError

    def seen(self) -> list[Seen]:
        return [seen for line in self.log.read_text(errors="replace").splitlines() if (seen := self.read(line)) is not None]

    def __enter__(self) -> Self:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                time.sleep(0.05)
        self.__exit__()
        raise AssertionError(f"{self.name} does not run: {self._errors.read_text(errors='replace')[-2000:]}")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Nginx(Peer):
    name = "nginx"
    binary = "nginx"

    def config(self, gateway_port: int) -> str:
        paths = "".join(f"{kind}_temp_path {self.folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        server = documented("nginx").replace("listen 443 ssl;", f"listen 127.0.0.1:{self.port};")
        server = re.sub(r"\n *ssl_.*", "", server).replace("127.0.0.1:8080", f"127.0.0.1:{gateway_port}")
        return f"""daemon off; master_process off; pid {self.folder}/pid; error_log stderr warn;
events {{ worker_connections 512; }}
http {{
{paths}
log_format seen escape=none 'seen|$status|$upstream_addr|$upstream_status|$request_completion|$request_method';
access_log {self.log} seen;
{server}
}}
"""

    def command(self, config: Path) -> list[str]:
        return [shutil.which("nginx", path="/usr/sbin:/usr/bin") or "nginx", "-p", str(self.folder), "-c", str(config)]

    def read(self, line: str) -> Seen | None:
        if not line.startswith("seen|"):
            return None
        _, status, address, told, _, method = line.split("|", 5)
        return Seen(line=method, status=int(status), forwarded=address not in ("", "-"), answered=told.isdigit() and told == status)


class Haproxy(Peer):
    name = "haproxy"
    binary = "haproxy"

    def config(self, gateway_port: int) -> str:
        body = documented("haproxy").replace("bind :443 ssl crt /etc/haproxy/gateway.pem", f"bind 127.0.0.1:{self.port}")
        body = body.replace("127.0.0.1:8080", f"127.0.0.1:{gateway_port}")
        log = "    log stdout format raw local0\n    log-format seen|%ST|%s|%ts|%HM\n"
        return "global\n    maxconn 500\n" + body.replace("defaults\n", "defaults\n" + log, 1)

    def command(self, config: Path) -> list[str]:
        return [shutil.which("haproxy", path="/usr/sbin:/usr/bin") or "haproxy", "-db", "-f", str(config)]

    def read(self, line: str) -> Seen | None:
        if not line.startswith("seen|"):
            return None
        _, status, server, ended, method = line.split("|", 4)
        if method == "<BADREQ>" and status in ("0", "-1"):
            return None  # a connection on which nothing came
        return Seen(line=method, status=int(status), forwarded=server != "<NOSRV>", answered=server != "<NOSRV>" and ended == "--")


PEERS: dict[str, type[Peer]] = {"nginx": Nginx, "haproxy": Haproxy}


def documented(language: str) -> str:
    """The block of the documentation: what is tried is what is said."""
    found = re.search(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None, language
    return found[1]


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
