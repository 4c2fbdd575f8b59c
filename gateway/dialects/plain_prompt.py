"""A prompt that no template renders: a text, token numbers, both in one list, or several of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.dialects.body_fields import invalid
from gateway.dialects.guard import guard_part


@dataclass(slots=True)
class PlainPrompt:
    texts: list[str] = field(default_factory=list)
    """Each is tokenised by itself."""
    ids: int = 0
    prompts: int = 0
    pictures: int = 0


def read_prompt(value: object, name: str, allowed: frozenset[str]) -> PlainPrompt:
    """As llama.cpp's native endpoints take it. Raises BodyError."""
    found = PlainPrompt()
    if isinstance(value, list) and not _is_one(value):
        for one in value:
            _one(one, name, found, allowed)
    else:
        _one(value, name, found, allowed)
    if not found.prompts:
        raise invalid(name, "a text, token numbers, or a list of prompts")
    return found


def _is_one(value: list[Any]) -> bool:
    """Numbers in it make a list one prompt."""
    return any(isinstance(item, int) and not isinstance(item, bool) for item in value)


def _one(value: object, name: str, found: PlainPrompt, allowed: frozenset[str]) -> None:
    found.prompts += 1
    if isinstance(value, str):
        found.texts.append(value)
    elif isinstance(value, Mapping):
        _with_media(value, name, found, allowed)
    elif isinstance(value, list) and value:
        for item in value:
            if isinstance(item, str):
                found.texts.append(item)
            elif isinstance(item, int) and not isinstance(item, bool) and item >= 0:
                found.ids += 1
            else:
                raise invalid(name, "a text, token numbers, or a list of prompts")
    else:
        raise invalid(name, "a text, token numbers, or a list of prompts")


def _with_media(value: Mapping[str, Any], name: str, found: PlainPrompt, allowed: frozenset[str]) -> None:
    text, media = value.get("prompt_string"), value.get("multimodal_data", [])
    if not isinstance(text, str) or not isinstance(media, list) or not all(isinstance(item, str) for item in media):
        raise invalid(name, "a text beside a list of encoded media")
    guard_part({"data": media}, "image", allowed)
    found.texts.append(text)
    found.pictures += len(media)
