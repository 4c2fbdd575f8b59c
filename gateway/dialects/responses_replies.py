"""The Responses form of errors and ends: `response.failed` for a cut, the flat `error` event for all else, `response.incomplete` at the ceiling.

A cut bears the code `insufficient_quota`: on it all measured clients stop; on an error without type some send the call again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.accounting.usage import Reading, Usage
from gateway.dialects.dialect import CallRequest, Reply, ReplyKind, Wording
from gateway.dialects.openai_replies import error_object
from gateway.dialects.openai_replies import reply as openai_reply
from gateway.dialects.received import write

FINAL_STATUS: Final = 400
"""Of a final refusal: every client that was measured stops on it after one refused call."""
CUT_CODE: Final = "insufficient_quota"
_CUTS: Final = (ReplyKind.FINAL, ReplyKind.PROMPT_ABOVE_CAP)
_NO_ID: Final = "resp_gateway"


def reply(wording: Wording) -> Reply:
    return openai_reply(wording, FINAL_STATUS)


def error_event(wording: Wording) -> bytes:
    if wording.kind in _CUTS:
        response = {**_response("failed", _NO_ID, ""), "error": {"code": CUT_CODE, "message": wording.message}}
        return named_event("response.failed", {"response": response})
    error = error_object(wording)
    return named_event("error", {"code": str(error["code"]), "message": error["message"], "param": error.get("param")})


def length_end(reading: Reading, request: CallRequest, usage: Usage | None) -> bytes:
    """`usage`: what was settled, where it is more than was read."""
    used = usage if usage is not None else reading.usage
    given = used.input_tokens
    output = used.output_tokens if used.output_tokens is not None else reading.running_output
    response = _response("incomplete", reading.response_id or _NO_ID, reading.model or request.model)
    response["incomplete_details"] = {"reason": "max_output_tokens"}
    if given is not None and output is not None:
        response["usage"] = {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": used.cached_tokens or 0},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens or 0},
            "total_tokens": given + output,
        }
    return named_event("response.incomplete", {"response": response})


def named_event(name: str, value: Mapping[str, object]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + write({"type": name, "sequence_number": 0, **value}) + b"\n\n"


def _response(status: str, response_id: str, model: str) -> dict[str, Any]:
    """With every member that clients look for, whether or not there is something to say."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": 0,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [],
        "usage": None,
    }
