"""The messages of OpenAI chat: every text that a template can render, and what may stand in a message."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, overload

import orjson

from gateway.dialects.barred import Allowed
from gateway.dialects.body_fields import invalid, not_allowed
from gateway.dialects.guard import guard_part
from gateway.dialects.json_text import compact, sizes
from gateway.dialects.known import MessagesRead
from gateway.dialects.spelling import SPOKEN, guard_spoken

_KNOWN_PARTS: Final = frozenset(
    {"image_url", "input_image", "input_audio", "audio_url", "video_url", "input_video", "image", "audio", "video", "file", "input_file"}
)
_PICTURES: Final = frozenset({"image_url", "input_image", "image", "video_url", "input_video", "video"})

_TEXT_ALONE: Final = {str}


class LateTexts(Sequence[str]):
    """Texts that few ask for: made for the first who does."""

    def __init__(self, make: Callable[[], Sequence[str]]) -> None:
        self._make = make
        self._made: Sequence[str] | None = None

    def _texts(self) -> Sequence[str]:
        if self._made is None:
            self._made = self._make()
        return self._made

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        return self._texts()[at]

    def __len__(self) -> int:
        return len(self._texts())

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts())


def read_messages(messages: Sequence[Mapping[str, Any]], texts: list[str], allowed: Allowed) -> MessagesRead:
    """Adds every text that a template can render to `texts`. Raises BodyError."""
    before = len(texts)
    pictures = calls = call_bytes = 0
    for message in messages:
        if "role" in message and message.keys() <= SPOKEN and set(map(type, message.values())) == _TEXT_ALONE:
            texts += message.values()  # most messages: all that follows would find nothing else
            continue
        pictures += _read_message(message, texts, allowed)
        listed = message.get("tool_calls")
        if listed.__class__ is list and listed:
            calls += len(listed)
            call_bytes += _each_bytes(listed, texts)
    added = texts[before:]
    return MessagesRead(pictures=pictures, parts=len(added), text_bytes=sizes(added), tool_calls=calls, call_bytes=call_bytes)


def _each_bytes(calls: list[Any], texts: list[str]) -> int:
    """Of the calls as compact JSON, without brackets and commas, which is added to `texts`."""
    try:
        text = orjson.dumps(calls)
    except TypeError:  # lone surrogates, whole numbers above 64 bits: no less than a template would make of them
        texts.append(compact(calls))
        return 2 * len(repr(calls).encode("utf-8", "surrogatepass"))
    texts.append(text.decode())
    return len(text) - 1 - len(calls)


def _read_message(message: Mapping[str, Any], texts: list[str], allowed: Allowed) -> int:
    """Returns the number of pictures."""
    if not isinstance(message.get("role"), str):
        raise invalid("messages.role", "a text")
    guard_spoken(message)
    pictures = 0
    for name, value in message.items():
        if isinstance(value, str):
            texts.append(value)
        elif name == "content" and isinstance(value, list):
            for part in value:
                pictures += _read_part(part, texts, allowed)
        elif name == "content" and value is not None:
            raise invalid("messages.content", "a text or a list of parts")
        elif name == "audio" and isinstance(value, dict) and "id" in value and "file_ids" not in allowed:
            raise not_allowed("messages.audio.id", "file_ids")
        elif value is not None and not isinstance(value, bool) and not (name == "tool_calls" and value.__class__ is list and value):
            texts.append(compact(value))
    return pictures


def _read_part(part: object, texts: list[str], allowed: Allowed) -> int:
    if isinstance(part, str):
        texts.append(part)
        return 0
    if not isinstance(part, dict):
        raise invalid("messages.content", "a text or a list of parts")
    guard_spoken(part)
    kind = part.get("type", "text")
    if not isinstance(kind, str):
        raise invalid("messages.content.type", "a text")
    texts.extend(value for name in ("text", "refusal", "thinking", "reasoning") if isinstance(value := part.get(name), str))
    guard_part(part, kind if kind in _KNOWN_PARTS else "content", allowed)
    return 1 if kind in _PICTURES or not _PICTURES.isdisjoint(part) else 0
