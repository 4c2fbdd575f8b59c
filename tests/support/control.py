"""The control plane as a driver sees it: JSON over HTTP over a Unix socket."""

from __future__ import annotations

import http.client
import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class ControlAnswered(AssertionError):
    """The control plane refused; `status` and `code` say how."""

    def __init__(self, method: str, path: str, status: int, body: Any) -> None:
        super().__init__(f"{method} {path}: {status} {body}")
        self.status = status
        self.body = body
        self.code = body.get("error", {}).get("code", "") if isinstance(body, dict) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRun:
    """A run with its secrets."""

    campaign: str
    run: str
    keys: dict[str, str]

    @property
    def key(self) -> str:
        """The only key, or the foreground's."""
        return self.keys.get("foreground") or next(iter(self.keys.values()))


class Control:
    """Each request on a connection of its own."""

    def __init__(self, path: Path | str, *, timeout_s: float = 30.0) -> None:
        self.path = str(path)
        self.timeout_s = timeout_s

    def raw(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        connection = _UnixConnection(self.path, self.timeout_s)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of a good answer. Raises ControlAnswered for any other."""
        status, data = self.raw(method, path, body)
        try:
            parsed = json.loads(data) if data else None
        except ValueError:
            parsed = data.decode(errors="replace")
        if status >= 300:
            raise ControlAnswered(method, path, status, parsed)
        return parsed

    def get(self, path: str) -> Any:
        return self.ask("GET", path)

    def post(self, path: str, body: object = None) -> Any:
        return self.ask("POST", path, {} if body is None else body)

    def text(self, path: str) -> str:
        status, data = self.raw("GET", path)
        assert status == 200, (status, data)
        return data.decode()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's rows that carry these labels."""
        total = 0.0
        for line in self.text("/metrics").splitlines():
            head, _, value = line.rpartition(" ")
            if head.partition("{")[0] == name and all(f'{label}="{wanted}"' in head for label, wanted in labels.items()):
                total += float(value)
        return total

    def open_campaign(self, campaign: str = "c1", policy: str = "test", **more: object) -> Any:
        return self.post("/v1/campaigns", {"campaign": campaign, "policy": policy, **more})

    def open_run(self, campaign: str = "c1", run: str | None = None, **more: object) -> OpenedRun:
        body = {**({} if run is None else {"run": run}), **more}
        answer = self.post(f"/v1/campaigns/{campaign}/runs", body)
        return OpenedRun(campaign=answer["campaign"], run=answer["run"], keys={lane: key for lane, key in answer["keys"].items() if key})

    def run(self, opened: OpenedRun) -> Any:
        return self.get(f"/v1/campaigns/{opened.campaign}/runs/{opened.run}")

    def close_run(self, opened: OpenedRun, results: object = None, **more: object) -> Any:
        return self.post(f"/v1/campaigns/{opened.campaign}/runs/{opened.run}/close", {"results": results or {}, **more})


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
