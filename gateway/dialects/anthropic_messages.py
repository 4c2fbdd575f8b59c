"""Anthropic Messages: what a body asks for, what is forwarded, how refusals and cuts are worded; and what is counted of one without a call.

The rule: an agent's body is checked here and only here; what leaves has one cap, `max_tokens`, and no alias of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from gateway.accounting.usage import Reading, Usage
from gateway.dialects.anthropic_body import MessagesBody
from gateway.dialects.anthropic_events import MessageReader
from gateway.dialects.anthropic_replies import error_event, named_event, reply
from gateway.dialects.barred import NOTHING, Allowed
from gateway.dialects.body_fields import flag, smallest_cap, text_of, whole_number
from gateway.dialects.dialect import CallRequest, ForwardFacts, Rendering, Reply, Wording
from gateway.dialects.guard import guard_fields, guard_inputs, guard_own
from gateway.dialects.known import Known
from gateway.dialects.output_caps import BUDGETS, CAPS, MINIMA, OURS, lower

SETTINGS: Final = frozenset(
    {
        *CAPS, *MINIMA, *BUDGETS,
        "model", "stream", "stop_sequences", "temperature", "top_p", "top_k", "min_p", "seed", "thinking", "tool_choice", "service_tier", "output_config",
        "context_management", "chat_template_kwargs", "cache_prompt", "ignore_eos", "repeat_penalty", "presence_penalty", "frequency_penalty", "inference_geo",
        "speed", "betas",
    }
)  # fmt: skip
_UNCOUNTED: Final = frozenset({*CAPS, *MINIMA, "stream", "metadata", "stop_sequences", "temperature", "top_p", "top_k"})
"""Without meaning for a count."""


class AnthropicMessages:
    """The dialect `anthropic.messages`."""

    name = "anthropic.messages"
    cap_names: tuple[str, ...] = CAPS
    settings: frozenset[str] = SETTINGS

    def read_request(self, body: Mapping[str, Any], allowed: Allowed = NOTHING, known: Known | None = None) -> CallRequest:
        model = text_of(body, "model")
        guard_fields(body, allowed)
        whole_number(body, "n", 1)
        guard_own(body, self.name, allowed)
        guard_inputs(body, "messages")
        held = MessagesBody(body, allowed)
        return CallRequest(
            model=model,
            stream=flag(body, "stream"),
            asked_output=smallest_cap(body, CAPS),
            min_output=max((value for name in MINIMA if (value := whole_number(body, name, 0)) is not None), default=None),
            choices=1,
            prompts=1,
            usage_asked=True,
            rendered_parts=tuple(held.parts),
            pictures=held.pictures,
            has_tools=bool(held.tool_names),
            tool_names=held.tool_names,
            body=body,
            rendering=Rendering.MESSAGES,
            sizes=held.sizes,
        )

    def forward_body(self, request: CallRequest, facts: ForwardFacts, *, ceiling_per_choice: int, call_id: str = "") -> dict[str, Any]:
        removed = facts.strip_fields | OURS | {"n", *CAPS}
        body = {name: value for name, value in request.body.items() if name not in removed}
        body["model"] = facts.model
        lower(body, ceiling_per_choice)
        body[facts.cap_name] = ceiling_per_choice
        for name, text in facts.pin_fields.items():
            body[name] = orjson.loads(text)
        if facts.request_id_field and call_id:
            body[facts.request_id_field] = call_id
        return body

    def reader(self, request: CallRequest, engine: str) -> MessageReader:
        return MessageReader()

    def reply(self, wording: Wording) -> Reply:
        return reply(wording)

    def error_event(self, wording: Wording) -> bytes:
        return error_event(wording)

    def length_end(self, reading: Reading, request: CallRequest, usage: Usage | None = None) -> bytes:
        used = usage if usage is not None else reading.usage
        output = used.output_tokens if used.output_tokens is not None else reading.running_output
        pieces = []
        if reading.open_block is not None:
            pieces.append(named_event("content_block_stop", {"type": "content_block_stop", "index": reading.open_block}))
        delta = {"stop_reason": "max_tokens", "stop_sequence": None}
        pieces.append(named_event("message_delta", {"type": "message_delta", "delta": delta, "usage": {"output_tokens": output or 0}}))
        pieces.append(named_event("message_stop", {"type": "message_stop"}))
        return b"".join(pieces)


def count_body(body: Mapping[str, Any], model: str, strip_fields: frozenset[str]) -> dict[str, Any]:
    """What an engine's counting endpoint is sent: the prompt, and nothing of how it is answered."""
    return {**{name: value for name, value in body.items() if name not in _UNCOUNTED and name not in strip_fields}, "model": model}


@dataclass(frozen=True, slots=True)
class CountTokens:
    """`anthropic.count_tokens`: how long a prompt would be. Guarded as the call itself is."""

    name: str = "anthropic.count_tokens"
    form: str = "anthropic.messages"

    def read(self, body: Mapping[str, Any], allowed: Allowed = NOTHING) -> str:
        return AnthropicMessages().read_request({"max_tokens": 1, **body}, allowed).model

    def forward(self, body: Mapping[str, Any], model: str, strip_fields: frozenset[str]) -> dict[str, Any]:
        return count_body(body, model, strip_fields)
