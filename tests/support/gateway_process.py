"""`gateway serve` as a process on a folder of its own: settings, one policy and a ledger, all made here. It can be stopped, killed and started again."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.support.control import Control, OpenedRun
from tests.support.processes import ReadyProcess
from tests.support.toml import Tables, merged, to_toml

POLICY: Tables = {"apis": ["openai.chat", "openai.models"], "models": {"mock": {"default_output_tokens": 64}}}
"""One model and no limit: a test adds what it is about."""


class GatewayProcess:
    """`policy` and `settings` are merged over the plainest ones; `policies` are more policy files by name.

    `wrap` goes before the command (strace, faketime).
    """

    def __init__(
        self,
        folder: Path,
        engine_url: str,
        *,
        policy: Tables | None = None,
        policies: Mapping[str, Tables] | None = None,
        settings: Tables | None = None,
        engine: str = "llama.cpp",
        models: Mapping[str, str] | None = None,
        slots: int = 4,
        env: Mapping[str, str] | None = None,
        wrap: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.env = dict(env or {})
        self.wrap = list(wrap)
        self._process: ReadyProcess | None = None
        self._sockets = Path(tempfile.mkdtemp(prefix="gw-"))  # a socket's path may not pass 107 bytes
        self.ledger = folder / "gateway.ledger"
        self.config = folder / "gateway.toml"
        upstream: Tables = {
            "address": engine_url,
            "engine": engine,
            "slots": slots,
            "models": models or {"mock": "mock"},
            "circuit_failures": 0,  # tests let it fail by the dozen
        }
        plain: Tables = {
            "policies": str(folder / "policies"),
            "data": {"listen": "127.0.0.1:0"},
            "control": {"socket": str(self._sockets / "control")},
            "ledger": {"path": str(self.ledger), "min_free_bytes": 0},
            "upstreams": {"engine": upstream},
        }
        folder.joinpath("policies").mkdir(parents=True, exist_ok=True)
        self.config.write_text(to_toml(merged(plain, settings or {})))
        self.write_policy("test", merged(POLICY, policy or {}))
        for name, tables in (policies or {}).items():
            self.write_policy(name, tables)

    def write_policy(self, name: str, tables: Tables) -> Path:
        path = self.folder / "policies" / f"{name}.toml"
        path.write_text(to_toml(tables))
        return path

    def start(self, *options: str) -> Self:
        command = [*self.wrap, sys.executable, "-m", "gateway", "serve", "--config", str(self.config), *options]
        self._process = ReadyProcess(command, env=self.env, cwd=self.folder)
        return self

    @property
    def process(self) -> ReadyProcess:
        assert self._process is not None, "not started"
        return self._process

    @property
    def address(self) -> str:
        """`http://127.0.0.1:PORT` of the data plane."""
        return self.process.ready["data"]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def control(self) -> Control:
        return Control(self.process.ready["control"].removeprefix("unix:"))

    def opened(self, campaign: str = "c1", run: str | None = None, *, policy: str = "test", **more: object) -> OpenedRun:
        """A run with its keys, in a campaign that is opened where it is not there."""
        if not any(one["campaign"] == campaign for one in _rows(self.control.get("/v1/campaigns"))):
            self.control.open_campaign(campaign, policy)
        return self.control.open_run(campaign, run, **more)

    def stop(self, *, timeout_s: float = 30.0) -> int:
        return self.process.stop(timeout_s=timeout_s)

    def kill(self) -> int:
        return self.process.kill()

    def close(self) -> None:
        """At the end of a test, however it went."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


def _rows(answer: object) -> list[dict[str, object]]:
    """A list, or an object that holds one."""
    if isinstance(answer, dict):
        answer = next((value for value in answer.values() if isinstance(value, list)), [])
    assert isinstance(answer, list)
    return answer
