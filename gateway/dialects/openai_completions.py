"""OpenAI plain completions: `POST /v1/completions`. One prompt or many, each with as many choices as `n` says; no template.

Servers report as they do for chat, but llama.cpp, which reports unasked on the event that ends each choice, and TGI, which does so for each prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.accounting.usage import Reading, Usage
from gateway.dialects.barred import NOTHING, Allowed
from gateway.dialects.body_fields import flag, invalid, object_of, smallest_cap, text_of, whole_number
from gateway.dialects.dialect import CallRequest, ForwardFacts, Rendering, Reply, Wording
from gateway.dialects.guard import guard_fields, guard_inputs, guard_own
from gateway.dialects.json_text import compact
from gateway.dialects.known import Known
from gateway.dialects.openai_chunks import ChunkReader
from gateway.dialects.openai_replies import error_event, length_end, reply
from gateway.dialects.openai_settings import SETTINGS, choices_of, forwarded
from gateway.dialects.output_caps import CAPS, MINIMA
from gateway.dialects.prompts import PROMPTS_MAX, read_prompts

_CONVERSATION: Final = ("messages", "input", "tools", "functions")
"""Fields of other formats: a server that takes several must not read these in place of the prompt."""
_RENDERED_FIELDS: Final = ("suffix", "json_schema", "grammar", "response_format", "structured_outputs", "guided_json")


class OpenAICompletions:
    """The dialect `openai.completions`."""

    name = "openai.completions"
    cap_names: tuple[str, ...] = CAPS
    settings: frozenset[str] = SETTINGS | {"best_of", "echo"}

    def read_request(self, body: Mapping[str, Any], allowed: Allowed = NOTHING, known: Known | None = None) -> CallRequest:
        model = text_of(body, "model")
        choices = choices_of(body)
        plain = {name: value for name, value in body.items() if name != "best_of"} if body.get("best_of") == choices else body  # it asks for no more than `n`
        guard_fields(plain, allowed)
        for name in _CONVERSATION:
            if body.get(name):
                raise invalid(name, "absent beside a prompt")
        guard_own(body, self.name, allowed)
        guard_inputs(body, "prompt")
        prompts = read_prompts(body.get("prompt"), "prompt")
        if prompts.count * choices > PROMPTS_MAX:
            raise invalid("n", "smaller, or the prompts fewer: together they ask for more answers than one call may")
        stream = flag(body, "stream")
        asked_usage = flag(object_of(body, "stream_options"), "include_usage", "stream_options.")
        return CallRequest(
            model=model,
            stream=stream,
            asked_output=smallest_cap(body, CAPS),
            min_output=max((value for name in MINIMA if (value := whole_number(body, name, 0)) is not None), default=None),
            choices=choices,
            prompts=prompts.count,
            usage_asked=stream and asked_usage,
            rendered_parts=(*prompts.texts, *(compact(value) for name in _RENDERED_FIELDS if (value := body.get(name)) is not None)),
            pictures=0,
            has_tools=False,
            tool_names=(),
            body=body,
            rendering=Rendering.PLAIN,
            prompt_texts=prompts.texts,
            prompt_ids=prompts.ids,
            prompt_begins=prompts.begins,
        )

    def forward_body(self, request: CallRequest, facts: ForwardFacts, *, ceiling_per_choice: int, call_id: str = "") -> dict[str, Any]:
        return forwarded(request, facts, ceiling_per_choice, call_id)

    def reader(self, request: CallRequest, engine: str) -> ChunkReader:
        by_choice = engine == "llama.cpp"
        return ChunkReader(choices=request.choices, prompts=request.prompts, usage_asked=request.usage_asked, by_choice=by_choice, plain=True)

    def reply(self, wording: Wording) -> Reply:
        return reply(wording)

    def error_event(self, wording: Wording) -> bytes:
        return error_event(wording)

    def length_end(self, reading: Reading, request: CallRequest, usage: Usage | None = None) -> bytes:
        return length_end(reading, request, usage, "text_completion", {"text": "", "logprobs": None})
