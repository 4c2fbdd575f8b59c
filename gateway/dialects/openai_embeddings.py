"""OpenAI embeddings: `POST /v1/embeddings`. Input alone: nothing is generated, so nothing is reserved but the prompts, and no cap is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.accounting.usage import Reading, Usage
from gateway.dialects.barred import NOTHING, Allowed
from gateway.dialects.body_fields import flag, invalid, text_of
from gateway.dialects.dialect import CallRequest, ForwardFacts, Rendering, Reply, Wording
from gateway.dialects.guard import guard_fields, guard_inputs
from gateway.dialects.input_answer import InputReader
from gateway.dialects.known import Known
from gateway.dialects.openai_replies import error_event, reply
from gateway.dialects.openai_settings import forwarded
from gateway.dialects.output_caps import CAPS
from gateway.dialects.prompts import read_prompts

_OTHER_INPUTS: Final = ("messages", "content", "prompt", "tools", "image_data", "images")
"""Servers that take several forms must not read these in place of the input."""


class OpenAIEmbeddings:
    """The dialect `openai.embeddings`."""

    name = "openai.embeddings"
    cap_names: tuple[str, ...] = CAPS
    settings: frozenset[str] = frozenset(
        {*CAPS, "model", "stream", "dimensions", "encoding_format", "truncate", "truncate_prompt_tokens", "input_type", "embd_normalize", "pooling"}
    )

    def read_request(self, body: Mapping[str, Any], allowed: Allowed = NOTHING, known: Known | None = None) -> CallRequest:
        model = text_of(body, "model")
        guard_fields(body, allowed)
        guard_inputs(body, "input")
        for name in _OTHER_INPUTS:
            if body.get(name):
                raise invalid(name, "absent beside an input")
        if flag(body, "stream"):
            raise invalid("stream", "false")
        inputs = read_prompts(body.get("input"), "input")
        return CallRequest(
            model=model,
            stream=False,
            asked_output=0,
            min_output=None,
            choices=1,
            prompts=inputs.count,
            usage_asked=False,
            rendered_parts=inputs.texts,
            pictures=0,
            has_tools=False,
            tool_names=(),
            body=body,
            rendering=Rendering.PLAIN,
            prompt_texts=inputs.texts,
            prompt_ids=inputs.ids,
            prompt_begins=inputs.begins,
            generates=False,
        )

    def forward_body(self, request: CallRequest, facts: ForwardFacts, *, ceiling_per_choice: int, call_id: str = "") -> dict[str, Any]:
        return forwarded(request, facts, ceiling_per_choice, call_id, asks_usage=False, dropped=("stream", "stream_options"))

    def reader(self, request: CallRequest, engine: str) -> InputReader:
        return InputReader(("data",))

    def reply(self, wording: Wording) -> Reply:
        return reply(wording)

    def error_event(self, wording: Wording) -> bytes:
        return error_event(wording)

    def length_end(self, reading: Reading, request: CallRequest, usage: Usage | None = None) -> bytes:
        """Nothing that is generated, nothing that could be cut."""
        return b""
