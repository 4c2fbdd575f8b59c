"""A server that answers each path with one fixed answer: what a model server was seen, or is known, to say of itself."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

CAPTURED = Path(__file__).parents[1] / "fixtures" / "engines"


@dataclass(frozen=True, slots=True)
class Fact:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    after_s: float = 0.0


def fact(value: object, status: int = 200, **headers: str) -> Fact:
    return Fact(status, json.dumps(value).encode(), headers)


def captured(engine: str, name: str) -> Fact:
    """As it was written down: with its head, or the body alone."""
    raw = (CAPTURED / engine / f"{name}.txt").read_bytes().replace(b"\r\n", b"\n")
    head, found, body = raw.partition(b"\n\n")
    if not found or not head.startswith(b"HTTP/"):
        missing = b'"Not Found"' in raw
        return Fact(404 if missing else 200, raw, {"server": "uvicorn"})
    lines = head.decode().split("\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return Fact(int(lines[0].split()[1]), body, {"server": headers.get("server", "")})


class FactServer:
    """`facts`: path -> answer, whatever the method. `asked`: method and path of every request."""

    def __init__(self, facts: Mapping[str, Fact], missing: Fact | None = None, credential: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.facts = facts
        self.missing = missing or Fact(404, b'{"detail":"Not Found"}', {"server": "uvicorn"})
        self.credential = credential
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, authorization: str) -> Fact:
        self.asked.append(f"{method} {path}")
        if self.credential and authorization != f"Bearer {self.credential}":
            return Fact(401, b'{"error":{"message":"Invalid API Key"}}')
        return self.facts.get(f"{method} {path}") or self.facts.get(path) or self.missing

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        facts = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def version_string(self) -> str:
                return ""

            def do_GET(self) -> None:
                self._write("GET")

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self._write("POST")

            def _write(self, method: str) -> None:
                found = facts.answer(method, self.path, self.headers.get("Authorization", ""))
                time.sleep(found.after_s)
                self.send_response_only(found.status)
                for name, value in {"content-type": "application/json", **found.headers, "content-length": str(len(found.body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(found.body)

            def log_message(self, format: str, *args: Any) -> None:
                return None

        return Handler
