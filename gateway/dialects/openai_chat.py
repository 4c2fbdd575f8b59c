"""OpenAI chat completions: `POST /v1/chat/completions`.

The rule: an agent's body is checked here and only here; what leaves has one cap, under the one name that its engine honours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.accounting.usage import Reading, Usage
from gateway.dialects.body_fields import flag, invalid, list_of_objects, object_of, smallest_cap, text_of, whole_number
from gateway.dialects.dialect import BodyError, CallRequest, ForwardFacts, Reply, Wording
from gateway.dialects.guard import GUARDED, guard_fields, guard_part, guard_spelling, guard_tools
from gateway.dialects.json_text import compact
from gateway.dialects.openai_chunks import ChunkReader
from gateway.dialects.openai_replies import error_event, length_end, reply
from gateway.dialects.openai_settings import SETTINGS, choices_of, forwarded
from gateway.dialects.output_caps import CAPS, MINIMA

_RENDERED_FIELDS: Final = ("response_format", "json_schema", "grammar", "documents", "chat_template_kwargs", "structured_outputs", "guided_json", "prefill")
_SPELLED: Final = SETTINGS | GUARDED.keys() | {"messages", "tools", "functions", "metadata", "user", *_RENDERED_FIELDS}
_KNOWN_PARTS: Final = frozenset(
    {"image_url", "input_image", "input_audio", "audio_url", "video_url", "input_video", "image", "audio", "video", "file", "input_file"}
)
_PICTURES: Final = frozenset({"image_url", "input_image", "image", "video_url", "input_video", "video"})


class OpenAIChat:
    """The dialect `openai.chat`."""

    name = "openai.chat"
    cap_names: tuple[str, ...] = CAPS
    settings: frozenset[str] = SETTINGS

    def read_request(self, body: Mapping[str, Any], allowed: frozenset[str] = frozenset()) -> CallRequest:
        model = text_of(body, "model")
        guard_fields(body, allowed)
        guard_spelling(body, _SPELLED)
        messages = list_of_objects(body, "messages")
        if not messages:
            raise invalid("messages", "a list that is not empty")
        stream = flag(body, "stream")
        asked_usage = flag(object_of(body, "stream_options"), "include_usage", "stream_options.")
        tools = list_of_objects(body, "tools")
        functions = list_of_objects(body, "functions")
        names = (*guard_tools(tools, allowed), *(text_of(function, "name") for function in functions))
        parts: list[str] = []
        pictures = 0
        for message in messages:
            pictures += _read_message(message, parts, allowed)
        parts.extend(compact(item) for item in (*tools, *functions))
        parts.extend(compact(value) for name in _RENDERED_FIELDS if (value := body.get(name)) is not None)
        return CallRequest(
            model=model,
            stream=stream,
            asked_output=smallest_cap(body, CAPS),
            min_output=max((value for name in MINIMA if (value := whole_number(body, name, 0)) is not None), default=None),
            choices=choices_of(body),
            prompts=1,
            usage_asked=stream and asked_usage,
            rendered_parts=tuple(parts),
            pictures=pictures,
            has_tools=bool(tools or functions),
            tool_names=names,
            body=body,
        )

    def forward_body(self, request: CallRequest, facts: ForwardFacts, *, ceiling_per_choice: int, call_id: str = "") -> dict[str, Any]:
        return forwarded(request, facts, ceiling_per_choice, call_id)

    def reader(self, request: CallRequest, engine: str) -> ChunkReader:
        return ChunkReader(choices=request.choices, usage_asked=request.usage_asked, by_choice=engine == "llama.cpp")

    def reply(self, wording: Wording) -> Reply:
        return reply(wording)

    def error_event(self, wording: Wording) -> bytes:
        return error_event(wording)

    def length_end(self, reading: Reading, request: CallRequest, usage: Usage | None = None) -> bytes:
        return length_end(reading, request, usage, "chat.completion.chunk", {"delta": {}})


def _read_message(message: Mapping[str, Any], parts: list[str], allowed: frozenset[str]) -> int:
    """Adds every text that a template can render. Returns the number of pictures."""
    if not isinstance(message.get("role"), str):
        raise invalid("messages.role", "a text")
    pictures = 0
    for name, value in message.items():
        if isinstance(value, str):
            parts.append(value)
        elif name == "content" and isinstance(value, list):
            for part in value:
                pictures += _read_part(part, parts, allowed)
        elif name == "content" and value is not None:
            raise invalid("messages.content", "a text or a list of parts")
        elif name == "audio" and isinstance(value, dict) and "id" in value and "audio" not in allowed:
            raise _reference("messages.audio.id")
        elif value is not None and not isinstance(value, bool):
            parts.append(compact(value))
    return pictures


def _reference(name: str) -> BodyError:
    return BodyError("not_allowed", f"The field {name} refers to something that is not in the body (allow.audio).", name, "allow.audio")


def _read_part(part: object, parts: list[str], allowed: frozenset[str]) -> int:
    if isinstance(part, str):
        parts.append(part)
        return 0
    if not isinstance(part, dict):
        raise invalid("messages.content", "a text or a list of parts")
    kind = part.get("type", "text")
    if not isinstance(kind, str):
        raise invalid("messages.content.type", "a text")
    parts.extend(value for name in ("text", "refusal", "thinking", "reasoning") if isinstance(value := part.get(name), str))
    guard_part(part, kind if kind in _KNOWN_PARTS else "content", allowed)
    return 1 if kind in _PICTURES or not _PICTURES.isdisjoint(part) else 0
