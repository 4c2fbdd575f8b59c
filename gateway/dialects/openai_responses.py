"""OpenAI Responses: `POST /v1/responses`, whole in every call. State that would outlive it (stored responses, conversations, prompt ids) is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.accounting.usage import Reading, Usage
from gateway.dialects.barred import NOTHING, Allowed
from gateway.dialects.body_fields import flag, invalid, list_of_objects, object_of, smallest_cap, text_of, whole_number
from gateway.dialects.dialect import CallRequest, ForwardFacts, PromptSizes, Rendering, Reply, Wording
from gateway.dialects.guard import guard_fields, guard_inputs, guard_own
from gateway.dialects.json_text import compact, size
from gateway.dialects.known import Known
from gateway.dialects.openai_settings import SETTINGS, choices_of, forwarded
from gateway.dialects.output_caps import CAPS, MINIMA
from gateway.dialects.responses_body import Gathered, read_input, read_tools
from gateway.dialects.responses_events import ResponsesReader
from gateway.dialects.responses_replies import error_event, length_end, reply

_OTHER_FORMATS: Final = ("messages", "functions")
_RENDERED_FIELDS: Final = ("response_format", "json_schema", "grammar", "chat_template_kwargs", "structured_outputs", "guided_json")


class OpenAIResponses:
    """The dialect `openai.responses`."""

    name = "openai.responses"
    cap_names: tuple[str, ...] = CAPS
    settings: frozenset[str] = SETTINGS | {
        "background", "include", "max_tool_calls", "previous_response_id", "prompt_cache_retention", "truncation",
    }  # fmt: skip

    def read_request(self, body: Mapping[str, Any], allowed: Allowed = NOTHING, known: Known | None = None) -> CallRequest:
        model = text_of(body, "model")
        guard_fields(body, allowed)
        guard_own(body, self.name, allowed)
        guard_inputs(body, "input", "prompt")
        for name in _OTHER_FORMATS:
            if body.get(name):
                raise invalid(name, "absent beside an input")
        if choices_of(body) != 1:
            raise invalid("n", "absent")
        stream = flag(body, "stream")
        gathered = Gathered()
        read_input(body.get("input"), allowed, gathered)
        instructions = body.get("instructions")
        if isinstance(instructions, str) and instructions:
            gathered.parts.append(instructions)
            gathered.messages += 1
        elif instructions:
            raise invalid("instructions", "a text")
        tools = list_of_objects(body, "tools")
        names = read_tools(tools, allowed)
        written = [compact(tool) for tool in tools]
        gathered.parts.extend(written)
        gathered.parts.extend(compact(value) for name in _RENDERED_FIELDS if (value := body.get(name)) is not None)
        shape = object_of(body, "text").get("format")
        if shape is not None:
            gathered.parts.append(compact(shape))
        return CallRequest(
            model=model,
            stream=stream,
            asked_output=smallest_cap(body, CAPS),
            min_output=max((value for name in MINIMA if (value := whole_number(body, name, 0)) is not None), default=None),
            choices=1,
            prompts=1,
            usage_asked=True,
            rendered_parts=tuple(gathered.parts),
            pictures=gathered.pictures,
            has_tools=bool(tools),
            tool_names=names,
            body=body,
            rendering=Rendering.RESPONSES,
            sizes=PromptSizes(
                messages=gathered.messages,
                tools=max(len(tools), len(names)),
                tool_bytes=sum(map(size, written)),
                tool_calls=gathered.calls,
                call_bytes=gathered.call_bytes,
            ),
        )

    def forward_body(self, request: CallRequest, facts: ForwardFacts, *, ceiling_per_choice: int, call_id: str = "") -> dict[str, Any]:
        return forwarded(request, facts, ceiling_per_choice, call_id, asks_usage=False)

    def reader(self, request: CallRequest, engine: str) -> ResponsesReader:
        return ResponsesReader()

    def reply(self, wording: Wording) -> Reply:
        return reply(wording)

    def error_event(self, wording: Wording) -> bytes:
        return error_event(wording)

    def length_end(self, reading: Reading, request: CallRequest, usage: Usage | None = None) -> bytes:
        return length_end(reading, request, usage)
