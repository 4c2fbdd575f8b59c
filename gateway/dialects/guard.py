"""The guard of bodies: refuses by name what `barred.py` lists, unless the policy allows it: fields by which an agent would make the engine fetch, act, load, or
share state for it.

The same for every format; a dialect adds what is its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from gateway.dialects.barred import CLIENT_TOOLS, GUARDED, OWN, REMOTE, THING_OF, Allowed, asks, own_asks, tool_thing
from gateway.dialects.body_fields import invalid, not_allowed
from gateway.dialects.dialect import BodyError
from gateway.dialects.spelling import FIELDS, guard_spelling

_ADDRESS: Final = re.compile(r"\s*(?://|/|\.|(?!data:)[A-Za-z][A-Za-z0-9+.-]{1,31}:\S)", re.IGNORECASE)
_WITHIN: Final = re.compile(r"\s*data:", re.IGNORECASE)
_PLACES: Final = frozenset({"url", "uri", "path", "image_url", "audio_url", "video_url", "file_url", "input_image", "input_video", "image", "audio", "video"})
"""Where servers look for an address: nothing but `data:` may stand there."""
_BYTES: Final = frozenset({"data", "file_data"})
_PLAIN: Final = frozenset({"type", "text", "refusal", "thinking", "reasoning", "detail", "format", "filename", "media_type"})
_FILE_KEYS: Final = frozenset({"file_id", "file_ids", "vector_store_ids"})
_DEEPEST: Final = 8
_INPUTS: Final = ("messages", "input", "prompt", "inputs", "input_ids")
INLINE_BOUND: Final = "bounds.max_inline_bytes"


def guard_fields(body: Mapping[str, Any], allowed: Allowed) -> None:
    for name in GUARDED.keys() & body.keys():
        if THING_OF[name] not in allowed and asks(name, body[name]):
            raise not_allowed(name, THING_OF[name])
    guard_spelling(body, FIELDS)


def guard_own(body: Mapping[str, Any], dialect: str, allowed: Allowed) -> None:
    """Fields that mean something in one format alone."""
    for name, thing in OWN[dialect].items():
        if thing not in allowed and own_asks(name, body.get(name)):
            raise not_allowed(name, thing)


def guard_inputs(body: Mapping[str, Any], *own: str) -> None:
    """What a call is about stands in the fields of its format: in another format's nobody would check or count it, and some servers take several."""
    for name in _INPUTS:
        if name not in own and body.get(name):
            raise invalid(name, f"absent beside {own[0]}")


def guard_tools(tools: Iterable[Mapping[str, Any]], allowed: Allowed) -> tuple[str, ...]:
    """The names of the tools offered."""
    names: list[str] = []
    for tool in tools:
        kind = tool.get("type", "function")
        if not isinstance(kind, str):
            raise invalid("tools.type", "a text")
        inner = tool.get(kind) if kind in CLIENT_TOOLS else tool
        if kind not in CLIENT_TOOLS and not allowed.hosts(kind):
            raise not_allowed("tools", tool_thing(kind))
        if not isinstance(inner, dict):
            raise invalid(f"tools.{kind}", "an object")
        name = inner.get("name", kind if kind not in CLIENT_TOOLS else None)
        if not isinstance(name, str):
            raise invalid(f"tools.{kind}.name", "a text")
        names.append(name)
    return tuple(names)


def guard_part(part: Mapping[str, Any], kind: str, allowed: Allowed) -> None:
    """One part of a message that is no text: what it holds must be in it, never elsewhere."""
    for name, value in part.items():
        _guard_value(name, value, kind, allowed, _DEEPEST)


def _guard_value(name: str, value: object, kind: str, allowed: Allowed, depth: int) -> None:
    if name in _PLAIN or value is None:
        return
    if name in _FILE_KEYS and "file_ids" not in allowed:
        raise not_allowed(name, "file_ids")
    if depth == 0:
        raise invalid(kind, "nested less deeply")
    if isinstance(value, str):
        if allowed.inline_bytes is not None and len(value) > allowed.inline_bytes:
            raise _too_large(kind)
        if (thing := REMOTE.get(kind, "remote_content")) not in allowed and not _is_within(name, value):
            raise not_allowed(kind, thing)
    elif isinstance(value, dict):
        for inner, held in value.items():
            _guard_value(inner, held, kind, allowed, depth - 1)
    elif isinstance(value, list):
        for held in value:
            _guard_value(name, held, kind, allowed, depth - 1)


def _too_large(kind: str) -> BodyError:
    words = f"The field {kind} holds more in one piece than this gateway takes ({INLINE_BOUND} of gateway.toml)."
    return BodyError("body_too_large", words, kind, INLINE_BOUND)


def _is_within(name: str, value: str) -> bool:
    """The text is content, not the address of some."""
    if _WITHIN.match(value) is not None:
        return True
    if name in _PLACES:
        return False
    if name in _BYTES:
        return ":" not in value[:64]
    return _ADDRESS.match(value) is None
