"""What the bodies of Ollama's own API hold: texts, pictures, the cap inside `options`, and that nothing in it loads, unloads or reaches out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.dialects.barred import RUNNER_OPTIONS, Allowed
from gateway.dialects.body_fields import invalid, list_of_objects, not_allowed, object_of, smallest_cap, whole_number
from gateway.dialects.guard import guard_fields, guard_inputs, guard_own, guard_part, guard_tools
from gateway.dialects.json_text import compact
from gateway.dialects.output_caps import CAPS
from gateway.dialects.spelling import guard_spoken


def guard(body: Mapping[str, Any], allowed: Allowed, own: str) -> None:
    """Raises BodyError."""
    guard_fields(body, allowed)
    guard_inputs(body, own)
    options = object_of(body, "options")
    for holder in (body, options):
        whole_number(holder, "n", 1)
        guard_own(holder, "ollama.chat", allowed)
    for name in RUNNER_OPTIONS:
        if options.get(name) is not None and "runner_options" not in allowed:
            raise not_allowed(f"options.{name}", "runner_options")
    guard_fields(options, allowed)


def asked_output(body: Mapping[str, Any]) -> int | None:
    """`num_predict`, of which every negative number means none."""
    options = object_of(body, "options")
    given = options.get("num_predict")
    named = {**options, "num_predict": None} if isinstance(given, int) and not isinstance(given, bool) and given < 0 else options
    caps = [cap for cap in (smallest_cap(named, CAPS), smallest_cap(body, CAPS)) if cap is not None]
    return min(caps) if caps else None


def streams(body: Mapping[str, Any]) -> bool:
    """An absent key still streams."""
    value = body.get("stream")
    if value is not None and not isinstance(value, bool):
        raise invalid("stream", "true or false")
    return value is not False


def pictures_of(holder: Mapping[str, Any], name: str, allowed: Allowed) -> int:
    """Bytes in base64, never an address."""
    images = holder.get("images")
    if images is None:
        return 0
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise invalid(name, "a list of texts")
    guard_part({"data": images}, "image", allowed)
    return len(images)


def read_chat(body: Mapping[str, Any], allowed: Allowed) -> tuple[list[str], int, tuple[str, ...]]:
    """Texts, pictures and the names of tools."""
    messages = list_of_objects(body, "messages")
    if not messages:
        raise invalid("messages", "a list that is not empty")
    parts: list[str] = []
    pictures = 0
    for message in messages:
        if not isinstance(message.get("role"), str):
            raise invalid("messages.role", "a text")
        guard_spoken(message)
        if not isinstance(message.get("content", ""), str | None):
            raise invalid("messages.content", "a text")
        parts.extend(value for value in message.values() if isinstance(value, str))
        parts.extend(compact(call) for call in list_of_objects(message, "tool_calls"))
        pictures += pictures_of(message, "messages.images", allowed)
    tools = list_of_objects(body, "tools")
    names = guard_tools(tools, allowed)
    parts.extend(compact(item) for item in (*tools, *(value for value in (body.get("format"),) if value is not None)))
    return parts, pictures, names
