"""Ollama's own API: chat, generate and embed.

The rule: it streams unless told not to, in JSON lines; the cap stands inside `options`, and every other alias of it is removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from gateway.accounting.usage import Reading, Usage
from gateway.dialects.barred import NOTHING, Allowed
from gateway.dialects.body_fields import invalid, object_of, text_of
from gateway.dialects.dialect import CallRequest, ForwardFacts, Rendering, Reply, Wording
from gateway.dialects.json_text import compact
from gateway.dialects.known import Known
from gateway.dialects.marked_reader import MarkedReader
from gateway.dialects.native_replies import error_of, line, reply
from gateway.dialects.ollama_body import asked_output, guard, pictures_of, read_chat, streams
from gateway.dialects.ollama_lines import LineReader
from gateway.dialects.output_caps import CAPS, OURS, lower
from gateway.dialects.vector_reader import VectorReader

SETTINGS: Final = frozenset({*CAPS, "model", "stream", "think", "options", "raw", "truncate", "shift", "logprobs", "top_logprobs", "dimensions", "keep_alive"})
_EPOCH: Final = "1970-01-01T00:00:00Z"


class _Ollama:
    """What the three share."""

    name = ""
    cap_names: tuple[str, ...] = CAPS
    settings: frozenset[str] = SETTINGS
    generates = True

    def forward_body(self, request: CallRequest, facts: ForwardFacts, *, ceiling_per_choice: int, call_id: str = "") -> dict[str, Any]:
        removed = facts.strip_fields | OURS | {"n", *CAPS}
        body = {name: value for name, value in request.body.items() if name not in removed}
        body["model"] = facts.model
        options = {name: value for name, value in object_of(request.body, "options").items() if name not in removed}
        if self.generates:
            lower(options, ceiling_per_choice)
            body["options"] = {**options, facts.cap_name: ceiling_per_choice}
        elif options or "options" in body:
            body["options"] = options
        for name, text in facts.pin_fields.items():
            body[name] = orjson.loads(text)
        return body

    def reader(self, request: CallRequest, engine: str) -> MarkedReader:
        return LineReader()

    def reply(self, wording: Wording) -> Reply:
        return reply(wording)

    def error_event(self, wording: Wording) -> bytes:
        return line(error_of(wording))

    def _ended(self, reading: Reading, request: CallRequest, usage: Usage | None, content: Mapping[str, object]) -> bytes:
        used = usage if usage is not None else reading.usage
        output = used.output_tokens if used.output_tokens is not None else reading.running_output
        counts = {"prompt_eval_count": used.input_tokens, "eval_count": output}
        head = {"model": reading.model or request.model, "created_at": _EPOCH, **content, "done": True, "done_reason": "length"}
        return line({**head, **{name: count for name, count in counts.items() if count is not None}})


class OllamaChat(_Ollama):
    """The dialect `ollama.chat`."""

    name = "ollama.chat"

    def read_request(self, body: Mapping[str, Any], allowed: Allowed = NOTHING, known: Known | None = None) -> CallRequest:
        model = text_of(body, "model")
        guard(body, allowed, "messages")
        parts, pictures, names = read_chat(body, allowed)
        return CallRequest(
            model=model,
            stream=streams(body),
            asked_output=asked_output(body),
            min_output=None,
            choices=1,
            prompts=1,
            usage_asked=True,
            rendered_parts=tuple(parts),
            pictures=pictures,
            has_tools=bool(names),
            tool_names=names,
            body=body,
            json_lines=True,
        )

    def length_end(self, reading: Reading, request: CallRequest, usage: Usage | None = None) -> bytes:
        return self._ended(reading, request, usage, {"message": {"role": "assistant", "content": ""}})


class OllamaGenerate(_Ollama):
    """The dialect `ollama.generate`. The model's template renders the prompt as a message, unless `raw`."""

    name = "ollama.generate"

    def read_request(self, body: Mapping[str, Any], allowed: Allowed = NOTHING, known: Known | None = None) -> CallRequest:
        model = text_of(body, "model")
        guard(body, allowed, "prompt")
        prompt = text_of(body, "prompt")  # without one the engine loads or unloads the model
        parts = [prompt, *(value for name in ("system", "suffix") if isinstance(value := body.get(name), str))]
        if body.get("format") is not None:
            parts.append(compact(body["format"]))
        return CallRequest(
            model=model,
            stream=streams(body),
            asked_output=asked_output(body),
            min_output=None,
            choices=1,
            prompts=1,
            usage_asked=True,
            rendered_parts=tuple(parts),
            pictures=pictures_of(body, "images", allowed),
            has_tools=False,
            tool_names=(),
            body=body,
            prompt_ids=_context(body),
            json_lines=True,
        )

    def length_end(self, reading: Reading, request: CallRequest, usage: Usage | None = None) -> bytes:
        return self._ended(reading, request, usage, {"response": ""})


class OllamaEmbed(_Ollama):
    """The dialect `ollama.embed`: it never streams, and generates nothing."""

    name = "ollama.embed"
    generates = False

    def read_request(self, body: Mapping[str, Any], allowed: Allowed = NOTHING, known: Known | None = None) -> CallRequest:
        model = text_of(body, "model")
        guard(body, allowed, "input")
        given = body.get("input")
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise invalid("input", "a text or a list of texts")
        return CallRequest(
            model=model,
            stream=False,
            asked_output=0,
            min_output=None,
            choices=1,
            prompts=len(texts),
            usage_asked=True,
            rendered_parts=tuple(texts),
            pictures=0,
            has_tools=False,
            tool_names=(),
            body=body,
            rendering=Rendering.PLAIN,
            prompt_texts=tuple(texts),
            generates=False,
        )

    def reader(self, request: CallRequest, engine: str) -> MarkedReader:
        return VectorReader()

    def length_end(self, reading: Reading, request: CallRequest, usage: Usage | None = None) -> bytes:
        return b""


def _context(body: Mapping[str, Any]) -> int:
    """Tokens of an earlier answer, handed back as numbers."""
    value = body.get("context")
    if value is None:
        return 0
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        raise invalid("context", "a list of whole numbers")
    return len(value)
