"""A prompt as servers' own formats take it: as plain completions do, or a text beside encoded media."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.dialects.barred import Allowed
from gateway.dialects.body_fields import invalid
from gateway.dialects.guard import guard_part
from gateway.dialects.prompts import PROMPTS_MAX, read_prompts


@dataclass(slots=True)
class PlainPrompt:
    texts: list[str] = field(default_factory=list)
    """Of all prompts, in order."""
    ids: int = 0
    prompts: int = 0
    begins: int = 0
    """Prompts that begin with a text: a tokenizer may put a token before."""
    pictures: int = 0


def read_prompt(value: object, name: str, allowed: Allowed) -> PlainPrompt:
    """Raises BodyError."""
    items = value if isinstance(value, list) else [value]
    found = PlainPrompt()
    if not any(isinstance(item, Mapping) for item in items):
        _plain(value, name, found)
        return found
    if len(items) > PROMPTS_MAX:
        raise invalid(name, "a shorter list")
    for item in items:
        if isinstance(item, Mapping):
            _with_media(item, name, found, allowed)
        else:
            _plain(item, name, found)
    return found


def _plain(value: object, name: str, found: PlainPrompt) -> None:
    prompts = read_prompts(value, name)
    found.texts.extend(prompts.texts)
    found.ids += prompts.ids
    found.prompts += prompts.count
    found.begins += prompts.begins


def _with_media(value: Mapping[str, Any], name: str, found: PlainPrompt, allowed: Allowed) -> None:
    text, media = value.get("prompt_string"), value.get("multimodal_data", [])
    if not isinstance(text, str) or not isinstance(media, list) or not all(isinstance(item, str) for item in media):
        raise invalid(name, "a text beside a list of encoded media")
    guard_part({"data": media}, "image", allowed)
    found.texts.append(text)
    found.prompts += 1
    found.begins += 1
    found.pictures += len(media)
