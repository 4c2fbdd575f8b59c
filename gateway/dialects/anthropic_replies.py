"""The Anthropic form of refusals, errors and the list of models.

A final refusal is 402 `billing_error`: every Messages client that was measured stops on it after one refused call. No id stands in a body: agents look for
numbers such as a status in it, and the call's id is in the headers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.dialects.dialect import Reply, ReplyKind, Wording
from gateway.dialects.received import write

RETRY_AFTER_S: Final = 2
_STOP: Final[Mapping[str, str]] = {"x-should-retry": "false"}
_FORMS: Final[Mapping[ReplyKind, tuple[int, str, Mapping[str, str]]]] = {
    ReplyKind.FINAL: (402, "billing_error", _STOP),
    ReplyKind.PROMPT_ABOVE_CAP: (402, "billing_error", _STOP),
    ReplyKind.PASSING: (429, "rate_limit_error", {"retry-after": str(RETRY_AFTER_S)}),
    ReplyKind.CONTEXT_OVERFLOW: (400, "invalid_request_error", _STOP),
    ReplyKind.GUARD: (400, "invalid_request_error", _STOP),
    ReplyKind.UNAVAILABLE: (503, "api_error", {}),
    ReplyKind.NOT_FOUND: (404, "not_found_error", _STOP),
    ReplyKind.UNAUTHORIZED: (401, "authentication_error", _STOP),
}
_TOO_LONG: Final = "prompt is too long"


def reply(wording: Wording) -> Reply:
    status, _, headers = _FORMS[wording.kind]
    return Reply(wording.status or status, write(_error(wording)), dict(headers))


def error_event(wording: Wording) -> bytes:
    """Ends a running stream."""
    return named_event("error", _error(wording))


def named_event(name: str, value: Mapping[str, object]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + write(value) + b"\n\n"


def models_reply(names: Sequence[str]) -> Reply:
    """`GET /v1/models` as Anthropic's clients read it: what is declared, and nothing of who serves it."""
    models = [{"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"} for name in names]
    ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
    return Reply(200, write({"data": models, "has_more": False, **ends}))


def _error(wording: Wording) -> dict[str, object]:
    kind = "overloaded_error" if wording.code == "overloaded" else _FORMS[wording.kind][1]
    error: dict[str, object] = {"type": kind, "message": wording.message, "code": wording.code}
    if wording.kind is ReplyKind.CONTEXT_OVERFLOW:
        prompt, context = wording.prompt_tokens, wording.context_tokens
        error["message"] = f"{_TOO_LONG}: {prompt} tokens > {context} maximum" if context else _TOO_LONG
    if wording.param:
        error["param"] = wording.param
    return {"type": "error", "error": error}
