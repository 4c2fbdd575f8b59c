"""The answers of many engines (tests/fixtures/dialects), as scripts of the mock engine: sent over a socket byte for byte, in any cuts."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from gateway.mock_engine import Die, Script

FOLDER = Path(__file__).parents[1] / "fixtures" / "dialects"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One answer of one engine."""

    name: str
    dialect: str
    upstream: str
    body: dict[str, Any]
    """What the engine was sent."""
    answer: bytes
    status: int
    headers: dict[str, str]
    own_cuts: tuple[int, ...]
    """Where `chunks.json` cuts it; empty where it does not."""
    expected: dict[str, Any]

    def pieces(self, cuts: tuple[int, ...]) -> tuple[bytes, ...]:
        edges = (0, *sorted(cuts), len(self.answer))
        return tuple(self.answer[one:two] for one, two in pairwise(edges) if two > one) or (b"",)

    def random_cuts(self, seed: int, number: int = 6) -> tuple[int, ...]:
        places = range(1, len(self.answer))
        return tuple(random.Random(f"{self.name}{seed}").sample(places, min(number, len(places)))) if places else ()

    def byte_by_byte(self) -> tuple[int, ...]:
        return tuple(range(1, len(self.answer)))

    def script(self, cuts: tuple[int, ...] | None = None, *, die: Die = Die.NO, gap_ms: int = 0) -> Script:
        """Without cuts: its own, else whole."""
        kind = self.headers.get("content-type", "application/json")
        headers = {name: value for name, value in self.headers.items() if name != "content-type"}
        pieces = self.pieces(self.own_cuts if cuts is None else cuts)
        return Script(raw=pieces, raw_status=self.status, raw_type=kind, headers=headers, die=die, gap_ms=gap_ms)

    def script_json(self, cuts: tuple[int, ...] | None = None, *, die: Die = Die.NO) -> dict[str, Any]:
        """The same for a mock engine in another process."""
        script = self.script(cuts, die=die)
        raw = [{"base64": base64.b64encode(piece).decode()} for piece in script.raw]
        return {"raw": raw, "raw_status": script.raw_status, "raw_type": script.raw_type, "headers": script.headers, "die": die.value}


@cache
def cases(dialect: str = "openai.chat") -> tuple[Case, ...]:
    """All answers of a dialect, by name."""
    found = [_read(path) for path in sorted(FOLDER.iterdir()) if path.is_dir()]
    return tuple(case for case in found if case.dialect == dialect)


def _read(folder: Path) -> Case:
    request = json.loads((folder / "request.json").read_text())
    response = request["response"]
    answer = (folder / response["file"]).read_bytes()
    return Case(
        name=folder.name,
        dialect=request["dialect"],
        upstream=request["upstream"],
        body=request.get("body") or {},
        answer=answer,
        status=response["status"],
        headers={name.lower(): value for name, value in response.get("headers", {}).items()},
        own_cuts=_own_cuts(folder / "chunks.json", len(answer)),
        expected=json.loads((folder / "expected.json").read_text()),
    )


def _own_cuts(path: Path, length: int) -> tuple[int, ...]:
    if not path.exists():
        return ()
    told = json.loads(path.read_text())
    return tuple(range(told["size"], length, told["size"])) if "size" in told else tuple(told["cuts"])
