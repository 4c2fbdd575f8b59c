"""The input of a Responses body: items and tools. Gathers what a template can render, and refuses what lies outside the body or would make the engine act."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.dialects.barred import Allowed, hosted_kind, tool_thing
from gateway.dialects.body_fields import invalid, not_allowed
from gateway.dialects.guard import guard_part
from gateway.dialects.json_text import compact, size
from gateway.dialects.spelling import guard_spoken

_CALL_END: Final = "_call"
_OUTPUT_END: Final = "_call_output"
_REFERENCES: Final = frozenset({"item_reference"})
_ACTS: Final = {"mcp_approval_response": "mcp", "compaction_trigger": "context_management"}
"""Items on which an engine would do more than answer."""
_KNOWN_PARTS: Final = frozenset(
    {"input_image", "input_file", "input_audio", "image_url", "audio_url", "video_url", "input_video", "computer_screenshot", "file"}
)
_PICTURES: Final = frozenset({"input_image", "image_url", "input_video", "video_url", "computer_screenshot"})
_SAID: Final = frozenset({"annotations", "logprobs"})
"""What an earlier answer says of its own text: never fetched."""
_DEEPEST_NAMESPACE: Final = 4


@dataclass(slots=True)
class Gathered:
    """Of a whole body."""

    parts: list[str] = field(default_factory=list)
    messages: int = 0
    calls: int = 0
    call_bytes: int = 0
    pictures: int = 0


def read_input(value: object, allowed: Allowed, gathered: Gathered) -> None:
    """Raises BodyError."""
    if isinstance(value, str) and value:
        gathered.parts.append(value)
        gathered.messages += 1
        return
    if not isinstance(value, list) or not value:
        raise invalid("input", "a text or a list that is not empty")
    for item in value:
        if not isinstance(item, dict):
            raise invalid("input", "a text or a list of objects")
        _read_item(item, allowed, gathered)


def _read_item(item: Mapping[str, Any], allowed: Allowed, gathered: Gathered) -> None:
    guard_spoken(item)
    kind = item.get("type", "message")
    if not isinstance(kind, str):
        raise invalid("input.type", "a text")
    if kind in _REFERENCES or ("role" not in item and kind == "message" and "content" not in item):
        raise not_allowed("input.item_reference", "item_references")
    if (thing := _ACTS.get(kind)) is not None and thing not in allowed:
        raise not_allowed(f"input.{kind}", thing)
    if kind == "message" and not isinstance(item.get("role"), str):
        raise invalid("input.role", "a text")
    gathered.messages += 1
    if kind.endswith(_CALL_END):
        gathered.calls += 1
        gathered.call_bytes += size(compact(item))
    for name, value in item.items():
        if isinstance(value, str):
            gathered.parts.append(value)
        elif name in ("content", "output") and isinstance(value, list):
            for part in value:
                _read_part(part, allowed, gathered)
        elif name == "output" and isinstance(value, dict):
            _read_part(value, allowed, gathered)
        elif name == "content" and value is not None:
            raise invalid("input.content", "a text or a list of parts")
        elif value is not None and not isinstance(value, bool):
            gathered.parts.append(compact(value))


def _read_part(part: object, allowed: Allowed, gathered: Gathered) -> None:
    if isinstance(part, str):
        gathered.parts.append(part)
        return
    if not isinstance(part, dict):
        raise invalid("input.content", "a text or a list of parts")
    guard_spoken(part)
    kind = part.get("type", "input_text")
    if not isinstance(kind, str):
        raise invalid("input.content.type", "a text")
    gathered.parts.extend(value for name in ("text", "refusal", "summary", "logs") if isinstance(value := part.get(name), str))
    guard_part({name: value for name, value in part.items() if name not in _SAID}, kind if kind in _KNOWN_PARTS else "content", allowed)
    gathered.pictures += kind in _PICTURES or not _PICTURES.isdisjoint(part)


def read_tools(tools: Iterable[Mapping[str, Any]], allowed: Allowed, depth: int = _DEEPEST_NAMESPACE) -> tuple[str, ...]:
    """The names of the tools offered. Raises BodyError."""
    names: list[str] = []
    for tool in tools:
        kind = tool.get("type", "function")
        if not isinstance(kind, str):
            raise invalid("tools.type", "a text")
        inner = tool.get("tools")
        if kind == "namespace" and isinstance(inner, list) and all(isinstance(each, dict) for each in inner):
            if depth == 0:
                raise invalid("tools", "nested less deeply")
            names.extend(read_tools(inner, allowed, depth - 1))
            continue
        if hosted_kind(tool, "openai.responses") is not None and not allowed.hosts(kind):
            raise not_allowed("tools", tool_thing(kind))
        name = tool.get("name", kind if kind not in ("function", "custom") else None)
        if not isinstance(name, str):
            raise invalid("tools.name", "a text")
        names.append(name)
    return tuple(names)
