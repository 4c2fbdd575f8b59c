"""OpenAI chat completions: `POST /v1/chat/completions`.

The rule: an agent's body is checked here and only here; what leaves has one cap, under the one name that its engine honours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.accounting.usage import Reading, Usage
from gateway.dialects.barred import NOTHING, Allowed
from gateway.dialects.body_fields import flag, invalid, list_of_objects, object_of, smallest_cap, text_of, whole_number
from gateway.dialects.dialect import CallRequest, ForwardFacts, Reply, Wording
from gateway.dialects.guard import guard_fields, guard_inputs, guard_tools
from gateway.dialects.json_text import compact
from gateway.dialects.known import Known
from gateway.dialects.openai_chunks import ChunkReader
from gateway.dialects.openai_messages import LateTexts, read_messages
from gateway.dialects.openai_replies import error_event, length_end, reply
from gateway.dialects.openai_settings import SETTINGS, choices_of, forwarded
from gateway.dialects.output_caps import CAPS, MINIMA

_RENDERED_FIELDS: Final = ("response_format", "json_schema", "grammar", "documents", "chat_template_kwargs", "structured_outputs", "guided_json", "prefill")


class OpenAIChat:
    """The dialect `openai.chat`."""

    name = "openai.chat"
    cap_names: tuple[str, ...] = CAPS
    settings: frozenset[str] = SETTINGS

    def read_request(self, body: Mapping[str, Any], allowed: Allowed = NOTHING, known: Known | None = None) -> CallRequest:
        model = text_of(body, "model")
        guard_fields(body, allowed)
        guard_inputs(body, "messages")
        messages = list_of_objects(body, "messages") if known is None else body["messages"]
        if not messages:
            raise invalid("messages", "a list that is not empty")
        stream = flag(body, "stream")
        asked_usage = flag(object_of(body, "stream_options"), "include_usage", "stream_options.")
        tools = list_of_objects(body, "tools")
        functions = list_of_objects(body, "functions")
        known_tools = known.tools if known is not None and body.get("functions") is None else None
        names = known_tools.names if known_tools is not None else (*guard_tools(tools, allowed), *(text_of(function, "name") for function in functions))
        texts: list[str] = []
        if known is None:
            read = read_messages(messages, texts, allowed)
        else:
            read = known.read + read_messages(list_of_objects({"messages": messages[known.messages :]}, "messages"), texts, allowed)
        unwritten = tools if known_tools is not None else []
        others = [compact(item) for item in (*tools, *functions)] if known_tools is None else []
        others += [compact(body[name]) for name in _RENDERED_FIELDS if name in body and body[name] is not None]
        return CallRequest(
            model=model,
            stream=stream,
            asked_output=smallest_cap(body, CAPS),
            min_output=max((value for name in MINIMA if name in body and (value := whole_number(body, name, 0)) is not None), default=None),
            choices=choices_of(body),
            prompts=1,
            usage_asked=stream and asked_usage,
            rendered_parts=(*texts, *others) if known is None else LateTexts(lambda: _texts(messages, unwritten, others, allowed)),
            other_parts=tuple(others),
            known_tools=known_tools,
            read=read,
            pictures=read.pictures,
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


def _texts(messages: list[dict[str, Any]], tools: list[dict[str, Any]], others: list[str], allowed: Allowed) -> tuple[str, ...]:
    texts: list[str] = []
    read_messages(messages, texts, allowed)
    return (*texts, *map(compact, tools), *others)
