"""Replays answers from fixtures through a meter, cut in any way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.accounting.usage import Reading
from gateway.dialects import DIALECTS
from gateway.dialects.dialect import Mark
from gateway.dialects.openai_chunks import ChunkReader
from gateway.metering.meter import Marked, Meter, meter_of

FIXTURES = Path(__file__).parents[2] / "fixtures"
MIB = 1024 * 1024


@dataclass(frozen=True)
class Case:
    name: str
    request: dict[str, Any]
    engine: str
    status: int
    headers: dict[str, str]
    body: bytes
    expected: dict[str, Any]
    cuts: tuple[int, ...] = ()


def dialect_cases() -> list[Case]:
    found = []
    for folder in sorted((FIXTURES / "dialects").iterdir()):
        if folder.is_dir():
            said = json.loads((folder / "request.json").read_text())
            answer = said["response"]
            body = (folder / answer["file"]).read_bytes()
            cut = json.loads((folder / "chunks.json").read_text()) if (folder / "chunks.json").exists() else {}
            cuts = tuple(cut.get("cuts", ())) or tuple(range(cut.get("size", len(body) + 1), len(body), cut.get("size", len(body) + 1)))
            expected = json.loads((folder / "expected.json").read_text())
            found.append(Case(folder.name, said["body"], said["upstream"], answer["status"], answer["headers"], body, expected, cuts))
    return found


def engine_cases() -> list[Case]:
    found = []
    for path in sorted((FIXTURES / "engines").glob("*/chat_*.body.txt")):
        stem = path.name.removesuffix(".body.txt")
        head = (path.parent / f"{stem}.headers.txt").read_text().splitlines()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:]) if value}
        request = json.loads((path.parent / f"{stem}.request.json").read_text())
        engine = "llama.cpp" if path.parent.name == "llama_cpp_native" else "generic"
        found.append(Case(f"{path.parent.name}-{stem}", request, engine, int(head[0].split()[1]), headers, path.read_bytes(), {}))
    return found


@dataclass
class Replayed:
    marked: list[Marked]
    reading: Reading
    reader: ChunkReader
    meter: Meter

    def raw(self) -> bytes:
        return b"".join(frame.raw for frame, _ in self.marked)

    def marks(self) -> list[Mark]:
        return [mark for _, mark in self.marked]


def reader_for(request: dict[str, Any], engine: str = "generic") -> ChunkReader:
    dialect = DIALECTS["openai.chat"]
    reader = dialect.reader(dialect.read_request(request), engine)
    assert isinstance(reader, ChunkReader)
    return reader


def pieces(body: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    start = 0
    for cut in (*cuts, len(body)):
        if cut > start:
            yield body[start:cut]
            start = cut


def replay(case: Case, cuts: Iterable[int] = (), truncated: bool = False) -> Replayed:
    reader = reader_for(case.request, case.engine)
    meter = meter_of(
        reader,
        status=case.status,
        content_type=case.headers.get("content-type", ""),
        content_encoding=case.headers.get("content-encoding", ""),
        max_event_bytes=16 * MIB,
        max_response_bytes=32 * MIB,
    )
    marked = [each for piece in pieces(case.body, cuts) for each in meter.feed(piece)]
    marked += meter.end()
    return Replayed(marked, meter.reading(case.status, truncated), reader, meter)
