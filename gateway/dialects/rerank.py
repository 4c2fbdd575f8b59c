"""Rerank: `POST /v1/rerank`, a query and documents. Each document is read together with the query, so the query counts once for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.accounting.usage import Reading, Usage
from gateway.dialects.barred import NOTHING, Allowed
from gateway.dialects.body_fields import flag, invalid, text_of
from gateway.dialects.dialect import CallRequest, ForwardFacts, PromptSizes, Rendering, Reply, Wording
from gateway.dialects.guard import guard_fields, guard_inputs
from gateway.dialects.input_answer import InputReader
from gateway.dialects.known import Known
from gateway.dialects.openai_replies import error_event, reply
from gateway.dialects.openai_settings import forwarded
from gateway.dialects.output_caps import CAPS
from gateway.dialects.prompts import PROMPTS_MAX

_OTHER_INPUTS: Final = ("messages", "input", "prompt", "texts", "tools", "images")
"""`texts` is another form, which some servers answer with a bare list and no usage."""


class Rerank:
    """The dialect `rerank`."""

    name = "rerank"
    cap_names: tuple[str, ...] = CAPS
    settings: frozenset[str] = frozenset(
        {*CAPS, "model", "stream", "top_n", "top_k", "return_documents", "return_text", "max_chunks_per_doc", "max_tokens_per_doc", "truncate_prompt_tokens"}
    )

    def read_request(self, body: Mapping[str, Any], allowed: Allowed = NOTHING, known: Known | None = None) -> CallRequest:
        model = text_of(body, "model")
        guard_fields(body, allowed)
        guard_inputs(body, "documents")
        for name in _OTHER_INPUTS:
            if body.get(name):
                raise invalid(name, "absent beside documents")
        if flag(body, "stream"):
            raise invalid("stream", "false")
        query = text_of(body, "query")
        documents = _documents(body)
        texts = tuple(text for document in documents for text in (query, document))
        return CallRequest(
            model=model,
            stream=False,
            asked_output=0,
            min_output=None,
            choices=1,
            prompts=len(documents),
            usage_asked=False,
            rendered_parts=texts,
            pictures=0,
            has_tools=False,
            tool_names=(),
            body=body,
            rendering=Rendering.PLAIN,
            prompt_texts=texts,
            prompt_begins=len(texts),
            prompt_literal=True,
            sizes=PromptSizes(messages=len(documents)),
            generates=False,
        )

    def forward_body(self, request: CallRequest, facts: ForwardFacts, *, ceiling_per_choice: int, call_id: str = "") -> dict[str, Any]:
        return forwarded(request, facts, ceiling_per_choice, call_id, asks_usage=False, dropped=("stream", "stream_options"))

    def reader(self, request: CallRequest, engine: str) -> InputReader:
        return InputReader(("results", "data"))

    def reply(self, wording: Wording) -> Reply:
        return reply(wording)

    def error_event(self, wording: Wording) -> bytes:
        return error_event(wording)

    def length_end(self, reading: Reading, request: CallRequest, usage: Usage | None = None) -> bytes:
        """Nothing that is generated, nothing that could be cut."""
        return b""


def _documents(body: Mapping[str, Any]) -> list[str]:
    """Texts, or objects that hold one as `text` and nothing else that could be read."""
    value = body.get("documents")
    if not isinstance(value, list) or not value:
        raise invalid("documents", "a list that is not empty")
    if len(value) > PROMPTS_MAX:
        raise invalid("documents", "a shorter list")
    found = []
    for item in value:
        text = item.get("text") if isinstance(item, dict) and len(item) == 1 else item
        if not isinstance(text, str):
            raise invalid("documents", "a list of texts")
        found.append(text)
    return found
