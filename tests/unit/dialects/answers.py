"""Replays answers from fixtures through a meter, cut in any way."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.accounting.usage import Reading
from gateway.dialects import DIALECTS
from gateway.dialects.dialect import EventReader, Mark
from gateway.dialects.openai_answer import Delivered
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
    dialect: str = "openai.chat"


def dialect_cases(dialect: str = "openai.chat") -> list[Case]:
    found = []
    for folder in sorted((FIXTURES / "dialects").iterdir()):
        if folder.is_dir():
            said = json.loads((folder / "request.json").read_text())
            if said["dialect"] != dialect:
                continue
            answer = said["response"]
            body = (folder / answer["file"]).read_bytes()
            cut = json.loads((folder / "chunks.json").read_text()) if (folder / "chunks.json").exists() else {}
            cuts = tuple(cut.get("cuts", ())) or tuple(range(cut.get("size", len(body) + 1), len(body), cut.get("size", len(body) + 1)))
            expected = json.loads((folder / "expected.json").read_text())
            found.append(Case(folder.name, said["body"], said["upstream"], answer["status"], answer["headers"], body, expected, cuts, dialect))
    return found


def engine_cases(kind: str = "chat", dialect: str = "openai.chat") -> list[Case]:
    """`kind`: what the names of the captures begin with."""
    found = []
    for path in sorted((FIXTURES / "engines").glob(f"*/{kind}*.body.txt")):
        stem = path.name.removesuffix(".body.txt")
        head = (path.parent / f"{stem}.headers.txt").read_text().splitlines()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:]) if value}
        request = json.loads((path.parent / f"{stem}.request.json").read_text())
        engine = "llama.cpp" if path.parent.name == "llama_cpp_native" else "generic"
        found.append(Case(f"{path.parent.name}-{stem}", request, engine, int(head[0].split()[1]), headers, path.read_bytes(), {}, dialect=dialect))
    return found


@dataclass
class Replayed:
    marked: list[Marked]
    reading: Reading
    reader: EventReader
    meter: Meter

    def raw(self) -> bytes:
        return b"".join(frame.raw for frame, _ in self.marked)

    def marks(self) -> list[Mark]:
        return [mark for _, mark in self.marked]

    def text(self) -> str:
        """Of the first choice, where the format has text."""
        delivered = getattr(self.reader, "delivered", None)
        return delivered.answer_text() if isinstance(delivered, Delivered) else ""


def reader_for(request: dict[str, Any], engine: str = "generic", dialect: str = "openai.chat") -> EventReader:
    spoken = DIALECTS[dialect]
    return spoken.reader(spoken.read_request(request), engine)


def pieces(body: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    start = 0
    for cut in (*cuts, len(body)):
        if cut > start:
            yield body[start:cut]
            start = cut


def replay(case: Case, cuts: Iterable[int] = (), truncated: bool = False) -> Replayed:
    reader = reader_for(case.request, case.engine, case.dialect)
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


ADVISORY = frozenset({"anomalies", "kind", "pending", "counted_tokens"})


def shown(replayed: Replayed, like: dict[str, Any]) -> dict[str, Any]:
    """The reading in the fixtures' words; keys that a case does not give are left out."""
    reading = replayed.reading
    usage = reading.usage
    known = usage.input_tokens is not None and usage.output_tokens is not None
    said = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_input_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "total_tokens": (usage.input_tokens or 0) + (usage.output_tokens or 0) if known else None,
        "usage_source": str(reading.source),
        "finish_reason": reading.finish_reason,
        "finish_reasons": list(reading.finish_reasons),
        "response_id": reading.response_id,
        "model": reading.model,
        "tool_calls": usage.tool_calls,
        "completed": reading.completed,
        "error_class": str(reading.error_class) if reading.error_class else None,
        "error_code": reading.error_code,
        "text": replayed.text(),
    }
    return {name: value for name, value in said.items() if name in like}


def wanted(case: Case) -> dict[str, Any]:
    return {name: value for name, value in case.expected.items() if name not in ADVISORY}


def identity(case: Case) -> bytes:
    return gzip.decompress(case.body) if case.headers.get("content-encoding") == "gzip" else case.body
