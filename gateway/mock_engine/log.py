"""What the mock engine saw: one `CallRecord` a request, kept in memory and written as a JSON line at its end.

Moments are taken just before a write is handed to the system: monotonic ns to measure with, Unix ns to hold against other logs.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedWriter
from pathlib import Path
from typing import Any

import orjson

CHAT_PATH = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Moment:
    monotonic_ns: int
    unix_ns: int


def moment() -> Moment:
    return Moment(time.monotonic_ns(), time.time_ns())


@dataclass(frozen=True, slots=True)
class Sent:
    """One piece of an answer's body, as written."""

    at: Moment
    size_bytes: int
    tokens: int
    """Generated so far, over all choices."""


@dataclass(slots=True, kw_only=True)
class CallRecord:
    """One request, from its arrival on; it fills while the call runs."""

    number: int
    arrival: Moment
    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    request_id: str = ""
    """The `X-Request-Id` that it carried."""
    model: str = ""
    stream: bool = False
    started: Moment | None = None
    """A slot was free."""
    status: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    asked_tokens: int = -1
    """The output cap that the body names for each choice; -1 where it names none."""
    output_tokens: int = 0
    """Really generated, over all choices."""
    sent: list[Sent] = field(default_factory=list)
    answer: bytearray = field(default_factory=bytearray)
    """The body as sent, without the framing of chunks; compressed where it was sent so."""
    left: Moment | None = None
    """The client went before the answer was over."""
    left_how: str = ""
    ended: Moment | None = None
    end: str = ""
    """`completed`, `client_left`, `stopped` (with the server), `died:KIND`; empty while it runs."""

    def json(self) -> Any:
        """The request's body."""
        return orjson.loads(self.body)

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")

    def wrote(self, piece: bytes) -> None:
        self.sent.append(Sent(moment(), len(piece), self.output_tokens))
        self.answer += piece

    def gone(self, how: str) -> None:
        if self.left is None:
            self.left, self.left_how = moment(), how

    def left_after_ms(self, since_unix_ns: int) -> float:
        """How long after a moment of the test's own clock the client was seen to leave. Raises ValueError where it stayed."""
        if self.left is None:
            raise ValueError("the client has not left")
        return (self.left.unix_ns - since_unix_ns) / 1e6

    def as_json(self) -> dict[str, Any]:
        """For the log file and /mock/log: everything but the answer's bytes, which stand as size and SHA-256."""
        record = {name: getattr(self, name) for name in self.__slots__ if name not in ("body", "answer", "headers", "sent")}
        return record | {
            "headers": [list(pair) for pair in self.headers],
            "body": self.body.decode("utf-8", "replace"),
            "body_sha256": hashlib.sha256(self.body).hexdigest(),
            "answer_bytes": len(self.answer),
            "answer_sha256": hashlib.sha256(self.answer).hexdigest(),
            "sent": [[one.at.monotonic_ns, one.at.unix_ns, one.size_bytes, one.tokens] for one in self.sent],
        }


class CallLog:
    """All records in order of arrival. Iterates over everything; `calls` are the model requests, `helpers` the counting."""

    def __init__(self, path: Path | None = None) -> None:
        self._records: list[CallRecord] = []
        self._next = 0
        self._file: BufferedWriter | None = path.open("ab") if path else None

    def __iter__(self) -> Iterator[CallRecord]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> CallRecord:
        return self._records[index]

    @property
    def calls(self) -> list[CallRecord]:
        return [record for record in self._records if record.path == CHAT_PATH]

    @property
    def helpers(self) -> list[CallRecord]:
        return [record for record in self._records if record.path in ("/tokenize", "/apply-template")]

    def by_request_id(self, request_id: str) -> CallRecord:
        """Raises KeyError where no call carried it."""
        for record in self._records:
            if record.request_id == request_id:
                return record
        raise KeyError(request_id)

    def open(self, method: str, path: str, headers: tuple[tuple[str, str], ...], body: bytes) -> CallRecord:
        self._next += 1
        record = CallRecord(number=self._next, arrival=moment(), method=method, path=path, headers=headers, body=body)
        record.request_id = record.header("x-request-id")
        self._records.append(record)
        return record

    def finish(self, record: CallRecord, end: str) -> None:
        record.ended, record.end = moment(), end
        if self._file is not None:
            self._file.write(orjson.dumps(record.as_json()) + b"\n")
            self._file.flush()

    def clear(self) -> None:
        self._records.clear()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
