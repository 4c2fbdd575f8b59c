"""The OpenAI form of refusals and errors: `{"error": {…}}`, by itself or as the event that ends a stream.

A final refusal is 404 with `x-should-retry: false`: all chat clients that were measured stop on it after one refused call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from gateway.dialects.dialect import Reply, ReplyKind, Wording

DONE: Final = b"data: [DONE]\n\n"
RETRY_AFTER_S: Final = 2
_STOP: Final[Mapping[str, str]] = {"x-should-retry": "false"}
_FORMS: Final[Mapping[ReplyKind, tuple[int, str, Mapping[str, str]]]] = {
    ReplyKind.FINAL: (404, "invalid_request_error", _STOP),
    ReplyKind.PROMPT_ABOVE_CAP: (404, "invalid_request_error", _STOP),
    ReplyKind.PASSING: (429, "rate_limit_error", {"retry-after": str(RETRY_AFTER_S)}),
    ReplyKind.CONTEXT_OVERFLOW: (400, "invalid_request_error", _STOP),
    ReplyKind.GUARD: (400, "invalid_request_error", _STOP),
    ReplyKind.UNAVAILABLE: (503, "server_error", {}),
    ReplyKind.NOT_FOUND: (404, "invalid_request_error", _STOP),
    ReplyKind.UNAUTHORIZED: (401, "authentication_error", _STOP),
}


def reply(wording: Wording) -> Reply:
    status, _, headers = _FORMS[wording.kind]
    return Reply(wording.status or status, orjson.dumps({"error": _error(wording)}), dict(headers))


def error_event(wording: Wording) -> bytes:
    """Ends a running stream: the error, then the end."""
    return data_event({"error": _error(wording)}) + DONE


def data_event(value: Mapping[str, object]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def models_reply(names: Sequence[str]) -> Reply:
    """`GET /v1/models`: what is declared, and nothing of who serves it."""
    models = [{"id": name, "object": "model", "created": 0, "owned_by": "model-gateway"} for name in names]
    return Reply(200, orjson.dumps({"object": "list", "data": models}))


def _error(wording: Wording) -> dict[str, object]:
    if wording.kind is ReplyKind.CONTEXT_OVERFLOW:
        return _overflow(wording)
    return {"message": wording.message, "type": _FORMS[wording.kind][1], "param": wording.param or None, "code": wording.code}


def _overflow(wording: Wording) -> dict[str, object]:
    """In the engine's own words: agents compact their conversation on these, and go on."""
    prompt, context = wording.prompt_tokens, wording.context_tokens
    if wording.engine not in ("", "llama.cpp"):
        text = f"This model's maximum context length is {context} tokens. However, your messages resulted in {prompt} tokens."
        return {"message": text if context else wording.message, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
    if not context:
        return {"code": 400, "message": "the request exceeds the available context size", "type": "exceed_context_size_error"}
    text = f"request ({prompt} tokens) exceeds the available context size ({context} tokens), try increasing it"
    return {"code": 400, "message": text, "type": "exceed_context_size_error", "n_prompt_tokens": prompt, "n_ctx": context}
