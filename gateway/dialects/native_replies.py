"""Refusals and errors of servers' native formats, `{"error": "words"}`, and Ollama's list of models.

A final refusal is 400, one that passes 503.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.dialects.dialect import Reply, ReplyKind, Wording
from gateway.dialects.received import write

RETRY_AFTER_S: Final = 2
_STOP: Final[Mapping[str, str]] = {"x-should-retry": "false"}
_FORMS: Final[Mapping[ReplyKind, tuple[int, Mapping[str, str]]]] = {
    ReplyKind.FINAL: (400, _STOP),
    ReplyKind.PROMPT_ABOVE_CAP: (400, _STOP),
    ReplyKind.PASSING: (503, {"retry-after": str(RETRY_AFTER_S)}),
    ReplyKind.CONTEXT_OVERFLOW: (400, _STOP),
    ReplyKind.GUARD: (400, _STOP),
    ReplyKind.UNAVAILABLE: (503, {}),
    ReplyKind.NOT_FOUND: (404, _STOP),
    ReplyKind.UNAUTHORIZED: (401, _STOP),
}


def reply(wording: Wording) -> Reply:
    status, headers = _FORMS[wording.kind]
    return Reply(wording.status or status, write(error_of(wording)), dict(headers))


def error_of(wording: Wording) -> dict[str, object]:
    error: dict[str, object] = {"error": wording.message, "code": wording.code}
    if wording.kind is ReplyKind.CONTEXT_OVERFLOW and wording.context_tokens:
        text = f"request ({wording.prompt_tokens} tokens) exceeds the available context size ({wording.context_tokens} tokens)"
        error = {"error": text, "code": wording.code, "n_prompt_tokens": wording.prompt_tokens, "n_ctx": wording.context_tokens}
    return {**error, "param": wording.param} if wording.param else error


def line(value: Mapping[str, object]) -> bytes:
    return write(value) + b"\n"


def data_event(value: Mapping[str, object]) -> bytes:
    return b"data: " + write(value) + b"\n\n"


def tags_reply(names: Sequence[str]) -> Reply:
    """`GET /api/tags`: what is declared, and nothing of who serves it."""
    details = {"parent_model": "", "format": "", "family": "", "families": [], "parameter_size": "", "quantization_level": ""}
    models = [{"name": name, "model": name, "modified_at": "1970-01-01T00:00:00Z", "size": 0, "digest": "", "details": details} for name in names]
    return Reply(200, write({"models": models}))
