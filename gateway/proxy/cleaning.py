"""An engine's error text, cleaned of what an agent must not learn: addresses, paths, traces. Clean text passes unchanged, JSON stays JSON."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_NAME_BEGINS: Final = r"(?<![\w.-])"
_PATH_BEGINS: Final = r"(?<![\w./~@+-])"
INTERNAL: Final = re.compile(
    r"Traceback \(most recent call last\).*"
    r"|\bBearer\s+[\w.~+/=-]{12,}"
    r"|\b(?:https?|unix|tcp|file|grpc|ws|wss|redis)://[^\s\"'<>\\)\]]+"
    r"|\b(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?\b"
    r"|\[(?=[0-9a-fA-F:.]{2,60}\])[0-9a-fA-F:]*::[0-9a-fA-F:.]*\](?::\d{1,5})?"
    r"|\blocalhost(?::\d{1,5})?\b"
    rf"|{_NAME_BEGINS}[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)++:\d{{2,5}}\b"
    rf"|{_NAME_BEGINS}[A-Za-z](?=[A-Za-z0-9-]*[0-9-])[A-Za-z0-9-]*+:\d{{4,5}}\b"
    rf"|{_NAME_BEGINS}[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]+)*\.(?:internal|local|localdomain|lan|intra|intranet|corp|home|svc)\b"
    rf"|{_PATH_BEGINS}~?/(?:home|root|usr|opt|var|etc|srv|mnt|data|models?|tmp|app|workspace|proc|run|Users|nix|lib|bin)/[^\s\"'<>:,)\\]*"
    rf"|{_PATH_BEGINS}(?:~|\.{{1,2}})?/(?:[\w.@+-]+/)+[\w@+-]+(?:\.[A-Za-z0-9]{{1,10}})+\b"
    r"|\b[A-Za-z]:\\[^\s\"'<>:,)]+",
    re.DOTALL,
)
"""Each begins where no name or path is under way, so that looking takes time in proportion to the text."""
TRACE_FIELDS: Final = frozenset({"trace", "traceback", "stack", "stacktrace", "stack_trace"})
REPLACEMENT: Final = "[internal]"
CLEANED_BYTES_MAX: Final = 256 * 1024
"""An error that is longer is no message: all of it is replaced, for reading it would hold up every other call."""
_TOO_LONG: Final = b'{"error":{"message":"[internal]"}}'
_FIELD: Final = re.compile(rb"(?P<name>[A-Za-z]+:[ ]?)(?P<value>.*?)(?P<end>\r?\n?)", re.DOTALL)


def clean(text: bytes) -> bytes:
    """A body, or the events of a stream: each JSON value in it by itself, what is none as plain text."""
    if len(text) > CLEANED_BYTES_MAX:
        return b"data: " + _TOO_LONG + b"\n\n" if text.startswith((b"data:", b"event:")) else _TOO_LONG
    whole = _clean_json(text)
    if whole is not None:
        return whole
    lines = text.splitlines(keepends=True)
    if any(line.startswith((b"data:", b"{")) for line in lines):
        return b"".join(map(_clean_line, lines))
    return _clean_plain(text)


def clean_text(text: str) -> str:
    """Addresses, host names with ports, file paths and traces replaced."""
    return INTERNAL.sub(REPLACEMENT, text)


def _clean_line(line: bytes) -> bytes:
    """A field of an event stream keeps its name and its line end; a line of JSON is one."""
    if line.startswith(b"{"):
        found = _clean_json(line)
        return _clean_plain(line) if found is None else found.rstrip(b"\r\n") + line[len(line.rstrip(b"\r\n")) :]
    field = _FIELD.fullmatch(line)
    if field is None:
        return _clean_plain(line)
    value = _clean_json(field["value"])
    return field["name"] + (_clean_plain(field["value"]) if value is None else value) + field["end"]


def _clean_json(text: bytes) -> bytes | None:
    """None where it is no JSON object or list."""
    if text.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        found = json.loads(text)
        cleaned = _clean_value(found)
    except (ValueError, RecursionError):
        return None
    return text if cleaned == found else json.dumps(cleaned, separators=(",", ":")).encode()


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_clean_value(inner) for inner in value]
    if isinstance(value, dict):
        return {name: REPLACEMENT if name.lower() in TRACE_FIELDS and inner else _clean_value(inner) for name, inner in value.items()}
    return value


def _clean_plain(text: bytes) -> bytes:
    """Byte for byte but for what is replaced."""
    return clean_text(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
