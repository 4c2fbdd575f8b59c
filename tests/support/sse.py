"""Events of a stream, read by the letter of the format and by nobody else's code: what the gateway's own reader gets wrong must show here."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

DONE = "[DONE]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    data: str
    name: str = ""
    raw: bytes = b""
    """With its closing blank line."""

    @property
    def done(self) -> bool:
        return self.data == DONE

    def json(self) -> Any:
        return json.loads(self.data)


def events(body: bytes) -> list[Event]:
    """All finished events that carry data; what follows the last blank line is none (see `unfinished`)."""
    found = []
    for raw in blocks(body)[0]:
        fields: dict[str, list[str]] = {}
        for line in re.split(r"\r\n|\n|\r", raw.decode("utf-8").lstrip("\ufeff")):
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
        if "data" in fields:
            found.append(Event(data="\n".join(fields["data"]), name=fields.get("event", [""])[-1], raw=raw))
    return found


def unfinished(body: bytes) -> bytes:
    """What stands behind the last blank line: empty for a stream that ends well."""
    return blocks(body)[1]


def comments(body: bytes) -> int:
    return sum(1 for line in re.split(rb"\r\n|\n|\r", body) if line.startswith(b":"))


def chunks(body: bytes) -> list[Any]:
    """The JSON of each event but `[DONE]`."""
    return [event.json() for event in events(body) if not event.done]


def text(body: bytes, *, choice: int = 0) -> str:
    return "".join(_deltas(body, choice, "content"))


def reasoning(body: bytes, *, choice: int = 0) -> str:
    return "".join(_deltas(body, choice, "reasoning_content"))


def usage(body: bytes) -> Any:
    """The last usage that the stream reports, or None."""
    return next((chunk["usage"] for chunk in reversed(chunks(body)) if chunk.get("usage")), None)


def finish_reason(body: bytes, *, choice: int = 0) -> str | None:
    reasons = [one.get("finish_reason") for chunk in chunks(body) for one in chunk.get("choices", ()) if one["index"] == choice]
    return next((reason for reason in reversed(reasons) if reason), None)


def error(body: bytes) -> Any:
    """The error event's error, or None."""
    return next((chunk["error"] for chunk in chunks(body) if isinstance(chunk, dict) and "error" in chunk), None)


def _deltas(body: bytes, choice: int, kind: str) -> list[str]:
    deltas = [one["delta"] for chunk in chunks(body) for one in chunk.get("choices", ()) if one["index"] == choice]
    return [delta[kind] for delta in deltas if delta.get(kind)]


def blocks(body: bytes) -> tuple[list[bytes], bytes]:
    """Events and comments as they stand, each with its closing blank line, and what follows the last one."""
    found, start = [], 0
    for end in re.finditer(rb"\r\n\r\n|\n\n|\r\r", body):
        found.append(body[start : end.end()])
        start = end.end()
    return found, body[start:]
