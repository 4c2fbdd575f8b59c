"""One gateway before an engine for each format: what a test of a promise over all of them needs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.ledger.reading import LedgerReader
from gateway.mock_engine.script import Script
from gateway.mock_engine.threaded import MockEngineThread
from tests.support.control import OpenedRun
from tests.support.formats import FORMATS, Format
from tests.support.gateway_process import GatewayProcess
from tests.support.raw_http import RawClient
from tests.support.toml import Tables, merged
from tests.support.waiting import eventually

ALONE = "tgi.generate"
"""It shares its path with another server's format: its policies are its own."""
Engines = dict[str, MockEngineThread]


@contextmanager
def engines() -> Iterator[Engines]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(MockEngineThread()) for name in FORMATS}


@dataclass(frozen=True)
class World:
    gateway: GatewayProcess
    engines: Engines

    def opened(self, one: Format, policy: str = "plain") -> OpenedRun:
        """A new run."""
        name = f"{policy}-alone" if one.name == ALONE else policy
        return self.gateway.opened(name, policy=name)

    def play(self, one: Format, stream: bool, *pieces: str, gap_ms: int = 0, status: int = 200, **more: Any) -> None:
        """The next answers of its engine, piece by piece, `gap_ms` apart."""
        raw = tuple(piece.encode() for piece in pieces)
        kind = one.content_type(stream and status == 200)
        self.engines[one.name].playbook.default = Script(raw=raw, raw_status=status, raw_type=kind, gap_ms=gap_ms, **more)

    def send(self, one: Format, stream: bool, run: OpenedRun, **more: Any) -> RawClient:
        client = RawClient(self.gateway.port)
        headers = {"Authorization": f"Bearer {run.key}", "Content-Type": "application/json"}
        client.request("POST", one.path, headers=headers, body=json.dumps(one.asking(stream, **more)).encode())
        return client

    def sent(self, one: Format) -> Any:
        """The last call that its engine got."""
        return [record for record in self.engines[one.name].log if record.path == one.path][-1]

    def calls(self, one: Format) -> int:
        return sum(record.path == one.path for record in self.engines[one.name].log)

    def row(self, call_id: str) -> dict[str, Any]:
        with LedgerReader(self.gateway.ledger) as reader:
            return next(dict(row) for row in reader.calls() if row["call_id"] == call_id)

    def rows(self, run: OpenedRun) -> list[dict[str, Any]]:
        with LedgerReader(self.gateway.ledger) as reader:
            return [dict(row) for row in reader.calls(campaign=run.campaign, run=run.run)]

    def settled(self, run: OpenedRun) -> dict[str, Any]:
        """The run's only call, once it is settled."""
        eventually(lambda: [row["status"] for row in self.rows(run)] == ["settled"], "the only call is settled")
        return self.rows(run)[0]


@contextmanager
def world(folder: Path, engines: Engines, policies: Mapping[str, Tables], **more: Any) -> Iterator[World]:
    """`policies`: what each adds to the plainest one."""
    upstreams: Any = {
        one.model: {
            "address": f"http://127.0.0.1:{engines[one.name].port}",
            "engine": one.engine,
            "slots": 8,
            "models": {one.model: "m"},
            "circuit_failures": 0,
        }
        for one in FORMATS.values()
    }
    models: Any = {
        one.model: {"default_output_tokens": 64, **({} if one.engine == "llama.cpp" else {"counter": "tiktoken:o200k_base"})} for one in FORMATS.values()
    }
    written: dict[str, Tables] = {}
    for name, tables in {"plain": {}, **policies}.items():
        each: Any = tables.get("each_model", {})
        rest = {key: value for key, value in tables.items() if key != "each_model"}
        for suffix, formats in (("", [one for one in FORMATS if one != ALONE]), ("-alone", [ALONE])):
            own = {FORMATS[one].model: merged(models[FORMATS[one].model], each) for one in formats}
            written[name + suffix] = merged({"apis": formats, "models": own}, rest)
    chat = engines["openai.chat"]
    folder.mkdir(exist_ok=True)
    url = f"http://127.0.0.1:{chat.port}"
    with GatewayProcess(folder, url, policies=written, settings={"upstreams": upstreams}, **more) as gateway:
        yield World(gateway, engines)
