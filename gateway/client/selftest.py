"""What can be reached from inside a sandbox: the gateway, and nothing else. `python3 selftest.py --gateway http://…` in there; one file, Python alone.

The rule: it tries, it never argues from configuration; what it could not try it says. It connects, asks a few paths of the gateway (no call,
so nothing is spent) and one name of each name server; it sends nothing else anywhere, and each try has its time.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import socket
import ssl
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

TRY_S = 2.0
SIDE_BY_SIDE = 64
FILES_MAX = 100_000
"""Looked at in search of sockets."""
CONTROL_PATHS = ("/v1/campaigns", "/v1/keys", "/v1/usage", "/v1/status", "/metrics", "/livez", "/readyz", "/v1/openapi.json")
"""None of them is answered on the agents' listener."""
PORTS = (53, 8000, 8001, 8081, 1234, 3000, 5000, 8090, 9090, 9464, 9465, 11434, 30000)
"""Of the gateway's host: engines, the control plane and metrics are usually there. `--scan` tries all."""
METADATA, NAME = "169.254.169.254:80", "example.com"
FOLDERS = ("/run", "/tmp", "/var/lib/docker")
REPEATED = {
    "engine": "HOST:PORT of an engine, which must not be reached",
    "outside": "any other HOST:PORT that must not be reached",
    "allow": "HOST:PORT or socket path that is the sandbox's own",
}


class Tried(NamedTuple):
    what: str
    target: str
    reached: bool
    wanted: bool
    note: str = ""

    @property
    def wrong(self) -> bool:
        return self.reached != self.wanted


class Asked(NamedTuple):
    gateway: str = ""
    socket: str = ""
    key: str = ""
    engines: Sequence[str] = ()
    outside: Sequence[str] = ()
    allow: Sequence[str] = ()
    ca_file: str = ""
    scan: bool = False


def slip(asked: Asked) -> str:
    """What can't be tried as it is written, and would pass for closed; empty where all can."""
    wrong = [one for one in (*asked.engines, *asked.outside) if not re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/\s]+):[0-9]{1,5}", one)]
    wrong += [asked.gateway] if asked.gateway and not re.match("https?://[^/:]", asked.gateway) else []
    return f"{wrong[0]!r} is no {'http://' if wrong[0] == asked.gateway else ''}HOST:PORT, so it can't be tried" if wrong else ""


def selftest(asked: Asked) -> list[Tried]:
    tried = [*_gateway(asked)]
    tried += _side_by_side((what, target) for what, target in _targets(asked) if target not in asked.allow)
    tried += [one for one in _dns(NAME) if one.target not in asked.allow]
    return [*tried, *_routes(asked), *_local_sockets(asked)]


def _gateway(asked: Asked) -> Iterator[Tried]:
    where = asked.socket or asked.gateway
    status, body = _ask(asked, "/v1/models")
    note = f"GET /v1/models answers {status}" if status else body
    yield Tried("gateway", where, bool(status), True, note)
    if not status:
        return
    for path in CONTROL_PATHS:
        status, _ = _ask(asked, path)
        yield Tried("control plane", where + path, 200 <= status < 300, False, f"answers {status}" if status else "gives no answer")


def _ask(asked: Asked, path: str) -> tuple[int, str]:
    """Status 0: no answer, and why."""
    headers = {"Authorization": "Bearer " + asked.key} if asked.key else {}
    connection = _connection(asked)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(65_536).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, _why(error)
    finally:
        connection.close()


def _connection(asked: Asked) -> http.client.HTTPConnection:
    if asked.socket:
        return _UnixConnection(asked.socket)
    parts = urlsplit(asked.gateway)
    host = parts.hostname or ""
    if parts.scheme == "https":
        return http.client.HTTPSConnection(host, parts.port, timeout=TRY_S, context=ssl.create_default_context(cafile=asked.ca_file or None))
    return http.client.HTTPConnection(host, parts.port, timeout=TRY_S)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("gateway", timeout=TRY_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TRY_S)
        self.sock.connect(self._path)


def _targets(asked: Asked) -> Iterator[tuple[str, str]]:
    yield from (("engine", target) for target in asked.engines)
    yield from (("outside", target) for target in asked.outside)
    yield "metadata", METADATA
    parts = urlsplit(asked.gateway)
    if parts.hostname:
        own = parts.port or (443 if parts.scheme == "https" else 80)
        for port in range(1, 65_536) if asked.scan else PORTS:
            if port != own:
                yield "gateway's host", _target(parts.hostname, port)
    servers = {server for server in _servers() if server not in ("127.0.0.1", "::1")}  # a container's own is asked for a name instead
    yield from (("local port", _target(host, port)) for host, port in _listeners() if host not in servers)


def _side_by_side(targets: Iterable[tuple[str, str]]) -> list[Tried]:
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return list(pool.map(_connects, dict.fromkeys(targets)))


def _connects(one: tuple[str, str]) -> Tried:
    what, target = one
    host, _, port = target.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), TRY_S).close()
    except (OSError, ValueError) as error:
        return Tried(what, target, False, False, _why(error))
    return Tried(what, target, True, False, "a connection was accepted")


def _target(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listeners() -> Iterator[tuple[str, int]]:
    """What listens on TCP in this network namespace."""
    for file, size in (("/proc/net/tcp", 4), ("/proc/net/tcp6", 16)):
        for line in _lines(file)[1:]:
            parts = line.split()
            if len(parts) > 3 and parts[3] == "0A":
                host, _, port = parts[1].partition(":")
                words = struct.unpack(f">{size // 4}I", bytes.fromhex(host))
                address = socket.inet_ntop(socket.AF_INET if size == 4 else socket.AF_INET6, struct.pack(f"={size // 4}I", *words))
                yield {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address), int(port, 16)


def _dns(name: str) -> Iterator[Tried]:
    servers = _servers()
    if not servers:
        yield Tried("DNS", "/etc/resolv.conf", False, False, "names no server")
    yield from (_resolves(server, name) for server in servers)


def _servers() -> list[str]:
    return list(dict.fromkeys(parts[1] for line in _lines("/etc/resolv.conf") if len(parts := line.split()) > 1 and parts[0] == "nameserver"))


def _resolves(server: str, name: str) -> Tried:
    """One question by UDP; what knows the name, or knows that there is none, asks others for us."""
    question = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"
    number = random.randrange(65_536)
    packet = struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + question + struct.pack(">HH", 1, 1)
    target = _target(server, 53)
    try:
        with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(TRY_S)
            asking.connect((server, 53))
            asking.send(packet)
            answer = asking.recv(4_096)
    except OSError as error:
        return Tried("DNS", target, False, False, _why(error))
    code = answer[3] & 0x0F if len(answer) >= 12 else -1
    return Tried("DNS", target, code in (0, 3), False, f"answers {name} with code {code}")


def _routes(asked: Asked) -> Iterator[Tried]:
    """A route is no reach. But where there is one and nothing behind it was tried, nothing was shown."""
    found = [parts[0] for line in _lines("/proc/net/route")[1:] if len(parts := line.split()) > 7 and parts[1] == parts[7] == "00000000"]
    found += [
        parts[9] for line in _lines("/proc/net/ipv6_route") if len(parts := line.split()) > 9 and parts[0] == "0" * 32 and parts[1] == "00" and parts[9] != "lo"
    ]
    for device in dict.fromkeys(found):
        if asked.outside:
            yield Tried("default route", device, False, False, "there is one; what lies behind it was tried above")
        else:
            yield Tried("default route", device, True, False, "there is one, and nothing behind it was tried: name what must not answer with --outside")
    if not found:
        yield Tried("default route", "none", False, False, "no way out is known here")


def _local_sockets(asked: Asked) -> list[Tried]:
    own = {os.path.realpath(path) for path in (asked.socket, *asked.allow) if path.startswith(("/", "."))}
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return list(pool.map(_opens, (path for path in _socket_files(asked) if os.path.realpath(path) not in own)))


def _socket_files(asked: Asked) -> list[str]:
    named = [os.environ.get(name, "") for name in ("GATEWAY_SOCKET", "SSH_AUTH_SOCK")]
    named.append(os.environ.get("DOCKER_HOST", "").partition("unix://")[2])
    abstract = [parts[7] for line in _lines("/proc/net/unix")[1:] if len(parts := line.split()) > 7 and parts[3] == "00010000"]
    folders = dict.fromkeys(Path(folder).resolve() for folder in (*FOLDERS, *([str(Path(asked.socket).parent)] if asked.socket else [])))
    files = islice((f"{where}/{name}" for folder in folders for where, _, names in os.walk(folder) for name in names), FILES_MAX)
    return list(dict.fromkeys(path for path in [*named, *abstract, *(file for file in files if Path(file).is_socket())] if path))


def _opens(path: str) -> Tried:
    why = ""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as trying:
            trying.settimeout(TRY_S)
            try:
                trying.connect("\0" + path[1:] if path.startswith("@") else path)
            except OSError as error:
                why = why or _why(error)
                continue
            return Tried("local socket", path, True, False, "a connection was accepted")
    return Tried("local socket", path, False, False, why)


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) or type(error).__name__


def written(tried: Sequence[Tried]) -> Iterator[str]:
    """The gateway, then what was reached and must not be, then in short what was not."""
    for one in tried:
        if one.wanted or one.reached:
            yield f"{'WRONG' if one.wrong else 'ok':<6} {'reached' if one.reached else 'not reached'}: {one.what} {one.target} ({one.note})"
    for what in dict.fromkeys(one.what for one in tried):
        closed = [one for one in tried if one.what == what and not one.reached and not one.wanted]
        if closed:
            named = ", ".join(one.target for one in closed[:4]) + (f" and {len(closed) - 4} more" if len(closed) > 4 else "")
            yield f"{'ok':<6} not reached: {what} {named} ({closed[0].note})"


def document(tried: Sequence[Tried]) -> dict[str, object]:
    reached = [f"{one.what} {one.target}" for one in tried if one.reached]
    return {"closed": good(tried), "reached": reached, "tried": [{**one._asdict(), "wrong": one.wrong} for one in tried]}


def good(tried: Sequence[Tried]) -> bool:
    """The gateway was reached, and nothing else."""
    return not any(one.wrong for one in tried)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="selftest.py", description="What can be reached from inside this sandbox: exits 1 if it is anything but the gateway.")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--gateway", default="", metavar="URL", help="http://HOST:PORT where agents come in")
    way.add_argument("--socket", default="", metavar="PATH", help="the Unix socket where agents come in")
    parser.add_argument("--key", default=os.environ.get("GATEWAY_KEY", ""), help="a key of a run; from GATEWAY_KEY where it is not given")
    for name, what in REPEATED.items():
        parser.add_argument(f"--{name}", action="append", default=[], metavar="WHAT", help=f"{what}; may be repeated")
    parser.add_argument("--ca-file", default="", metavar="FILE", help="PEM of the authority that signed an https gateway")
    parser.add_argument("--scan", action="store_true", help="try every port of the gateway's host")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON document instead of text")
    given = parser.parse_args(arguments)
    asked = Asked(given.gateway, given.socket, given.key, given.engine, given.outside, given.allow, given.ca_file, given.scan)
    if wrong := slip(asked):
        parser.error(wrong)
    tried = selftest(asked)
    print(json.dumps(document(tried), indent=2) if given.as_json else "\n".join(written(tried)))
    return 0 if good(tried) else 1


if __name__ == "__main__":
    sys.exit(main())
