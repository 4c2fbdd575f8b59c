"""What stands on record of a body: its settings as JSON text, and of every other field its size and digest. No content.

Made from the bytes as received: nothing of size is written out again, and nothing is hashed twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import orjson

from gateway.dialects.digests import Continued, Hash
from gateway.dialects.field_spans import Span, field_spans
from gateway.dialects.json_text import compact, sizes
from gateway.dialects.known import Known, KnownMessages

SETTING_BYTES_MAX: Final = 4_096
"""A setting that is longer stands as a digest, as other fields do."""
TOOLS_NAMED_MAX: Final = 256
_NONE: Final[Mapping[Span, str]] = {}


def body_record(
    raw: bytes,
    body: Mapping[str, Any],
    settings: Collection[str],
    tool_names: Sequence[str],
    spans: Mapping[str, Span] | None = None,
    digests: Mapping[Span, str] = _NONE,
    by_role: Mapping[str, int] | None = None,
    tools_sha256: str = "",
) -> dict[str, object]:
    """Details of a reservation. `body` is what `raw` holds. What is known of it already: where its fields stand, digests by where their bytes stand, sizes."""
    asked: dict[str, object] = {}
    fields: dict[str, object] = {}
    for name, span in (spans if spans is not None else field_spans(raw, body)).items():
        begin, end = span
        if name in settings and end - begin <= SETTING_BYTES_MAX:
            asked[name] = raw[begin:end].decode("utf-8", "backslashreplace")
        else:
            fields[ascii_name(name)] = {"bytes": end - begin, "sha256": digests.get(span) or hashlib.sha256(memoryview(raw)[begin:end]).hexdigest()}
    record: dict[str, object] = {
        "settings_asked": asked,
        "fields": fields,
        "body_bytes": len(raw),
        "body_sha256": digests.get((0, len(raw))) or hashlib.sha256(raw).hexdigest(),
    }
    messages = conversation(body)
    if messages is not None:
        record["messages"] = len(messages)
        held = by_role if by_role is not None else bytes_by_role(messages)
        system = sum(_bytes([body[name]]) for name in _SYSTEM_FIELDS if name in body)
        record["bytes_by_role"] = {**held, "system": held.get("system", 0) + system} if system else held
    if tool_names:
        record["tools"] = [plain(name) for name in tool_names[:TOOLS_NAMED_MAX]]
        record["tool_count"] = len(tool_names)
        record["tools_sha256"] = tools_sha256 or _sha256_of([body.get("tools"), body.get("functions")])
    return record


def _sha256_of(value: object) -> str:
    return hashlib.sha256(compact(value).encode("utf-8", "surrogatepass")).hexdigest()


def sent_record(forwarded: Mapping[str, Any], settings: Collection[str], sent: bytes, digest: str = "") -> dict[str, object]:
    """The same of the body as forwarded: settings as sent, size and digest (`digest` where it is known)."""
    texts = ((name, plain(compact(value))) for name, value in forwarded.items() if name in settings)
    short = {name: text for name, text in texts if len(text) <= SETTING_BYTES_MAX}
    return {"settings_sent": short, "sent_bytes": len(sent), "sent_sha256": digest or hashlib.sha256(sent).hexdigest()}


def conversation(body: Mapping[str, Any]) -> Sequence[Any] | None:
    """The messages of a body, or the items of a Responses body; None where there is no conversation."""
    for name in ("messages", "input"):
        found = body.get(name)
        if isinstance(found, KnownMessages):
            return found
        if isinstance(found, list) and (name == "messages" or any(isinstance(item, dict) for item in found)):
            return found
    return None


def bytes_by_role(messages: Sequence[object]) -> dict[str, int]:
    """Of all texts, by role; roles that no format knows are one."""
    held: dict[str, list[object]] = {}
    roles_bytes: dict[str, int] = {}
    for message in messages:
        if isinstance(message, dict):
            role = message.get("role")
            if type(role) is str and role in _ROLES:
                role_bytes = len(role)
            else:
                role, role_bytes = _role_of_item(message.get("type")), _bytes([role])
            if role not in held:
                held[role], roles_bytes[role] = [], 0
            held[role] += message.values()
            roles_bytes[role] += role_bytes
    return {role: _bytes(values) - roles_bytes[role] for role, values in held.items()}


def _role_of_item(kind: object) -> str:
    """Items of Responses that have no role: what the model did, and what its tools gave."""
    if not isinstance(kind, str):
        return "other"
    if kind.endswith("_call_output"):
        return "tool"
    return "assistant" if kind == "reasoning" or kind.endswith("_call") else "other"


_SYSTEM_FIELDS: Final = ("instructions", "system")
"""Where formats put the system's text beside the messages."""
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


def _bytes(values: list[Any]) -> int:
    """Of all texts in them, at any depth."""
    total = 0
    while values:
        texts = [value for value in values if type(value) is str]
        total += sizes(texts)
        if len(texts) == len(values):
            break
        below: list[Any] = []
        for value in values:
            kind = type(value)
            if kind is list:
                below += value
            elif kind is dict:
                below += value.values()
        values = below
    return total


def canonical_sha256(body: Mapping[str, Any], *, plain: bool = False) -> str | None:
    """Of the body in canonical form (RFC 8785), or None: it holds what has no canonical form, or a number whose form is not plain.

    `plain`: no number and no name in it needs a look.
    """
    try:
        text = orjson.dumps(body if plain else _plain_numbers(body), option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError):
        return None
    return hashlib.sha256(text).hexdigest()


def canonical_continued(body: Mapping[str, Any], known: Known | None) -> tuple[str, Mapping[bytes, Hash]]:
    """The same digest of a plain body with messages, and the hashes behind them. What `known` holds of them is not written again."""
    messages = body["messages"]
    start = known.messages if known is not None else 0
    added = memoryview(_sorted(messages[start:]))[1:-1]
    comma = b"," if start and added else b""
    digests = Continued(
        known.canonical if known is not None else {},
        lambda: memoryview(_sorted(messages[:start]))[:-1] if start else b"[",
        (comma, added),
    )
    head = _sorted({name: value for name, value in body.items() if name < "messages"})[:-1]
    tail = _sorted({name: value for name, value in body.items() if name > "messages"})[1:]
    digest = digests.sha256(head + (b"," if len(head) > 1 else b"") + b'"messages":', b"]" + (b"," if len(tail) > 1 else b"") + tail)
    return digest, digests.behind


def _sorted(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _plain_numbers(value: object) -> object:
    """Copies only what holds a number with a point. Raises ValueError where plain writing and canonical writing differ."""
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 2**53:
            return int(value)
        if value.is_integer() or abs(value) < 1e-4:
            raise ValueError("not plain")
        return value
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**53:
        raise ValueError("not exact")
    if isinstance(value, dict):
        if not all(name.isascii() or max(name) < "\ud800" for name in value):
            raise ValueError("order of names")
        return {name: inner if isinstance(inner, str) else _plain_numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [inner if isinstance(inner, str) else _plain_numbers(inner) for inner in value]
    return value


def ascii_name(name: str) -> str:
    """A field's name as a key of the record: ASCII alone."""
    return name if name.isascii() else json.dumps(name)[1:-1]


def plain(text: str) -> str:
    """Valid Unicode: what is none is escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
