"""A real Prometheus on a free port, which scrapes one gateway every second and keeps the project's own rules."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Self

import yaml

from tests.support import promql

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Prometheus:
    def __init__(self, folder: Path, target: str) -> None:
        folder.mkdir(parents=True)
        told = yaml.safe_load((promql.ROOT / "prometheus" / "prometheus.yml").read_text())
        told["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        told["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
        for path in (promql.RULES, promql.ALERTS):
            shutil.copy(path, folder)
        config = folder / "prometheus.yml"
        config.write_text(yaml.safe_dump(told))
        self.address = f"127.0.0.1:{_free_port()}"
        self._log = (folder / "log").open("w")
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={self.address}"]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)

    def ask(self, expr: str, at: float | None = None) -> list[dict[str, Any]]:
        """The series at one moment."""
        found = self._get("query", query=expr, **({} if at is None else {"time": f"{at:.3f}"}))
        assert found["resultType"] == "vector", expr
        return list(found["result"])

    def ask_over(self, expr: str, begin: float, end: float, step_s: float = 1.0) -> list[dict[str, Any]]:
        return list(self._get("query_range", query=expr, start=f"{begin:.3f}", end=f"{end:.3f}", step=f"{step_s}")["result"])

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str, **query: str) -> Any:
        with _DIRECT.open(f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=30) as answer:
            told = json.loads(answer.read())
        assert told["status"] == "success", told
        return told["data"]

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        latest = time.monotonic() + timeout_s
        while True:
            try:
                with _DIRECT.open(f"http://{self.address}/-/ready", timeout=5):
                    return
            except OSError:
                assert time.monotonic() < latest and self._process.poll() is None, "Prometheus did not start"
                time.sleep(0.2)

    def __enter__(self) -> Self:
        try:
            self.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
