"""`gateway mock-engine` as a process of its own: its pace does not hang on the test's. Scripts and log go over its admin paths."""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any, Self

from tests.support.processes import ReadyProcess

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class MockProcess:
    def __init__(self, *, script: object = None, log: Path | None = None, port: int = 0) -> None:
        command = [sys.executable, "-m", "gateway", "mock-engine", "--listen", f"127.0.0.1:{port}", *(["--log", str(log)] if log else [])]
        self.process = ReadyProcess(command)
        if script is not None:
            self.script(script)

    @property
    def url(self) -> str:
        return self.process.ready["engine"]

    def script(self, script: object) -> None:
        """In place of all scripts: one, a list, or a whole playbook."""
        self._ask("PUT", "/mock/script", script)

    def queue(self, *scripts: object) -> None:
        self._ask("POST", "/mock/script", list(scripts))

    def log(self) -> list[dict[str, Any]]:
        """Everything that it saw."""
        records: list[dict[str, Any]] = self._ask("GET", "/mock/log")
        return records

    def calls(self) -> list[dict[str, Any]]:
        return [record for record in self.log() if record["path"] == "/v1/chat/completions"]

    def clear(self) -> None:
        self._ask("DELETE", "/mock/log")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with _DIRECT.open(urllib.request.Request(self.url + path, data, method=method), timeout=30) as answer:
            return json.loads(answer.read())
