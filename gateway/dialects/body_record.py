"""What stands on record of a body: its settings as JSON text, and of every other field its size and digest. No content.

Made from the bytes as received: nothing of size is written out again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import orjson

from gateway.dialects.field_spans import field_spans
from gateway.dialects.json_text import compact, size

SETTING_BYTES_MAX: Final = 4_096
"""A setting that is longer stands as a digest, as other fields do."""
TOOLS_NAMED_MAX: Final = 256


def body_record(raw: bytes, body: Mapping[str, Any], settings: Collection[str], tool_names: Sequence[str]) -> dict[str, object]:
    """Details of a reservation. `body` is what `raw` holds."""
    asked: dict[str, object] = {}
    fields: dict[str, object] = {}
    for name, (begin, end) in field_spans(raw, body).items():
        key = ascii_name(name)
        value = raw[begin:end]
        if name in settings and len(value) <= SETTING_BYTES_MAX:
            asked[key] = value.decode("utf-8", "backslashreplace")
        else:
            fields[key] = {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    record: dict[str, object] = {
        "settings_asked": asked,
        "fields": fields,
        "body_bytes": len(raw),
        "body_sha256": hashlib.sha256(raw).hexdigest(),
    }
    messages = conversation(body)
    if messages is not None:
        record["messages"] = len(messages)
        by_role = bytes_by_role(messages)
        system = sum(_bytes(body[name]) for name in _SYSTEM_FIELDS if name in body)
        record["bytes_by_role"] = {**by_role, "system": by_role.get("system", 0) + system} if system else by_role
    if tool_names:
        record["tools"] = [plain(name) for name in tool_names[:TOOLS_NAMED_MAX]]
        record["tool_count"] = len(tool_names)
        record["tools_sha256"] = hashlib.sha256(compact([body.get("tools"), body.get("functions")]).encode("utf-8", "surrogatepass")).hexdigest()
    return record


def sent_record(forwarded: Mapping[str, Any], settings: Collection[str], sent: bytes) -> dict[str, object]:
    """The same of the body as forwarded: settings as sent, size and digest."""
    texts = {ascii_name(name): plain(compact(value)) for name, value in forwarded.items() if name in settings}
    short = {name: text for name, text in texts.items() if len(text) <= SETTING_BYTES_MAX}
    return {"settings_sent": short, "sent_bytes": len(sent), "sent_sha256": hashlib.sha256(sent).hexdigest()}


def conversation(body: Mapping[str, Any]) -> list[Any] | None:
    """The messages of a body, or the items of a Responses body; None where there is no conversation."""
    for name in ("messages", "input"):
        found = body.get(name)
        if isinstance(found, list) and (name == "messages" or any(isinstance(item, dict) for item in found)):
            return found
    return None


def bytes_by_role(messages: Sequence[object]) -> dict[str, int]:
    """Of all texts, by role; roles that no format knows are one."""
    totals: dict[str, int] = {}
    for message in messages:
        if isinstance(message, dict):
            role = message.get("role")
            role = role if isinstance(role, str) and role in _ROLES else _role_of_item(message.get("type"))
            total = totals.get(role, 0)
            for name, value in message.items():
                if name != "role":
                    total += (len(value) if value.isascii() else size(value)) if type(value) is str else _bytes(value)
            totals[role] = total
    return totals


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


def _bytes(value: object) -> int:
    if isinstance(value, str):
        return size(value)
    if isinstance(value, list):
        return sum(map(_bytes, value))
    if isinstance(value, dict):
        return sum(map(_bytes, value.values()))
    return 0


def canonical_sha256(body: Mapping[str, Any]) -> str | None:
    """Of the body in canonical form (RFC 8785), or None: it holds what has no canonical form, or a number whose form is not plain."""
    try:
        text = orjson.dumps(body if _is_plain(body) else _plain_numbers(body), option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError):
        return None
    return hashlib.sha256(text).hexdigest()


def _is_plain(body: Mapping[str, Any]) -> bool:
    """No number and no name in it needs a look: it may be written as it is, without a copy."""
    left: list[Any] = [body]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            if not "".join(node).isascii():
                return False
            node = node.values()
        for value in node:
            kind = type(value)
            if kind is str:
                continue
            if kind is dict or kind is list:
                left.append(value)
            elif (kind is float and (value.is_integer() or abs(value) < 1e-4)) or (kind is int and not -(2**53) < value < 2**53):
                return False
    return True


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
