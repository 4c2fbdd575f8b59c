"""The OpenAI form of refusals and errors: `{"error": {…}}`, by itself or as the event that ends a stream.

A final refusal is 404 with `x-should-retry: false`: all chat clients that were measured stop on it after one refused call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.accounting.usage import Reading, Usage
from gateway.dialects.dialect import CallRequest, Reply, ReplyKind, Wording
from gateway.dialects.received import write

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


_FINAL: Final = (ReplyKind.FINAL, ReplyKind.PROMPT_ABOVE_CAP)


def reply(wording: Wording, final_status: int = 404) -> Reply:
    """`final_status`: of a final refusal in this format."""
    status, _, headers = _FORMS[wording.kind]
    own = final_status if wording.kind in _FINAL else status
    return Reply(wording.status or own, write({"error": error_object(wording)}), dict(headers))


def error_event(wording: Wording) -> bytes:
    """Ends a running stream: the error, then the end."""
    return data_event({"error": error_object(wording)}) + DONE


def data_event(value: Mapping[str, object]) -> bytes:
    return b"data: " + write(value) + b"\n\n"


def length_end(reading: Reading, request: CallRequest, usage: Usage | None, kind: str, part: Mapping[str, object]) -> bytes:
    """Every choice that runs ends with `length`, then usage if it was asked for, then the end. `usage`: what was settled, where it is more than was read."""
    head: dict[str, Any] = {"id": reading.response_id or "", "object": kind, "created": 0, "model": reading.model or request.model}
    finished = dict(enumerate(reading.finish_reasons))
    pieces = [
        data_event({**head, "choices": [{"index": index, **part, "finish_reason": "length"}]})
        for index in range(max(request.choices * request.prompts, len(finished)))
        if not finished.get(index)
    ]
    used = usage if usage is not None else reading.usage
    given = used.input_tokens
    output = used.output_tokens if used.output_tokens is not None else reading.running_output
    if request.usage_asked and given is not None and output is not None:
        counts = {"prompt_tokens": given, "completion_tokens": output, "total_tokens": given + output}
        pieces.append(data_event({**head, "choices": [], "usage": counts}))
    return b"".join((*pieces, DONE))


def models_reply(names: Sequence[str]) -> Reply:
    """`GET /v1/models`: what is declared, and nothing of who serves it."""
    models = [{"id": name, "object": "model", "created": 0, "owned_by": "model-gateway"} for name in names]
    return Reply(200, write({"object": "list", "data": models}))


def error_object(wording: Wording) -> dict[str, object]:
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
