"""What an agent is told when its call is not admitted or its engine fails: code, kind and words, before a dialect gives them their form.

The rule: words of a final refusal hold no digit and none of the words on which agents try again; numbers go into headers only.
"""

from __future__ import annotations

from gateway.accounting.usage import Outcome
from gateway.dialects.dialect import BodyError, ReplyKind, Wording
from gateway.dialects.retry_words import is_final_wording
from gateway.errors import EngineFailure
from gateway.proxy.body import BodyRefused
from gateway.proxy.cleaning import clean_text
from gateway.upstream.call import Refusal

FINAL_WORDS = {
    "run_budget_reached": "Run budget reached. No further model calls are allowed for this run.",
    "prompt_above_cap": "The prompt is larger than this run allows for one call. No call with this prompt is allowed.",
    "run_closed": "This run is closed. No further model calls are allowed for this run.",
    "window_over": "The time window of this campaign is over. No further model calls are allowed.",
    "preflight_required": "This run must confirm its limits before its first model call.",
}
PASSING_WORDS = {
    "busy": "All places are taken at the moment. Please try again shortly.",
    "campaign_halted": "This campaign is paused. Please try again later.",
    "shutting_down": "The gateway is shutting down. Please try again shortly.",
}
UNAVAILABLE_WORDS = {
    "ledger_unavailable": "The ledger cannot be written, so nothing is forwarded.",
    "clock": "The clock of the gateway needs to be confirmed by its operator, so nothing is forwarded.",
    "engine_unavailable": "The model server is not available.",
    "overloaded": "Too many calls are waiting, or too many connections are open.",
}
PASSING_CODES = frozenset(PASSING_WORDS)
UNAUTHORIZED = Wording(kind=ReplyKind.UNAUTHORIZED, code="unauthorized", message="The key is missing or not known.", status=401)
UNDECLARED = Wording(kind=ReplyKind.NOT_FOUND, code="not_found", message="Not a declared API of this gateway.", status=404)
BAD_REQUEST = Wording(kind=ReplyKind.GUARD, code="bad_request", message="The request is not well-formed HTTP, or its head is too large.")
HEAD_LATE = Wording(kind=ReplyKind.GUARD, code=BAD_REQUEST.code, message="The head of the request did not arrive in time.", status=408)
SHUT_WORDS = "The gateway is shutting down; this call was cut. No further model calls are answered here."
CUT_WORDS = {
    Outcome.CLOSED_CUT: "run_closed",
    Outcome.DEADLINE_CUT: "run_budget_reached",
    Outcome.SHUTDOWN_CUT: "shutting_down",
}


def refusal_wording(refusal: Refusal, status: int | None = None, *, tell: bool = True) -> Wording:
    """`status`: what the policy sets for a final refusal in this dialect, else None. `tell`: the agent may see numbers."""
    code = refusal.code
    if code in PASSING_WORDS:
        return Wording(kind=ReplyKind.PASSING, code=code, message=PASSING_WORDS[code])
    if code in UNAVAILABLE_WORDS:
        return Wording(kind=ReplyKind.UNAVAILABLE, code=code, message=UNAVAILABLE_WORDS[code], status=503)
    if code == "context_overflow":
        return _overflow_wording(refusal, tell)
    kind = ReplyKind.PROMPT_ABOVE_CAP if code == "prompt_above_cap" else ReplyKind.FINAL
    return Wording(kind=kind, code=code, message=FINAL_WORDS.get(code, FINAL_WORDS["run_budget_reached"]), status=status)


def _overflow_wording(refusal: Refusal, tell: bool) -> Wording:
    """In the engine's own form, which holds both numbers where it has them: agents compact by these."""
    shortfall = refusal.shortfall if tell else None
    return Wording(
        kind=ReplyKind.CONTEXT_OVERFLOW,
        code=refusal.code,
        message="The prompt leaves no room for an answer in the context of this model.",
        engine=refusal.engine,
        prompt_tokens=0 if shortfall is None else shortfall.asked,
        context_tokens=0 if shortfall is None else shortfall.ceiling,
    )


def guard_wording(error: BodyError | BodyRefused) -> Wording:
    """What the guard refuses: 400, 404 for an unknown model."""
    kind = ReplyKind.NOT_FOUND if error.code == "model_not_found" else ReplyKind.GUARD
    return Wording(kind=kind, code=error.code, message=str(error), param=getattr(error, "field_name", ""))


def template_words(reason: str) -> str:
    """Why a model's template refuses a conversation: in the engine's words where these are clean and would make nobody try again."""
    words = "The model's template can't render this conversation"
    reason = clean_text(reason)[:200].strip()
    return f"{words}: {reason}" if reason and is_final_wording(reason) else f"{words}."


def engine_wording(failure: EngineFailure) -> Wording:
    """An engine that could not be used: the kind that may be tried again."""
    match failure.kind:
        case "unreachable":
            return Wording(kind=ReplyKind.UNAVAILABLE, code="engine_unreachable", message="The model server cannot be reached.", status=502)
        case "closed":
            return Wording(kind=ReplyKind.UNAVAILABLE, code="engine_closed", message="The model server closed the connection.", status=502)
        case "timeout":
            return Wording(kind=ReplyKind.UNAVAILABLE, code="engine_timeout", message="The model server did not answer in time.", status=504)
        case _:
            return ENGINE_DIED


ENGINE_DIED = Wording(kind=ReplyKind.UNAVAILABLE, code="engine_died", message="The model server ended the answer before it was complete.", status=502)
ENGINE_ERROR = Wording(kind=ReplyKind.UNAVAILABLE, code="engine_error", message="The model server failed on this call.", status=502)
UPSTREAM_AUTH = Wording(kind=ReplyKind.UNAVAILABLE, code="upstream_auth", message="The model server does not accept the gateway.", status=502)


def cut_wording(outcome: Outcome) -> Wording:
    """A call that the gateway cut: the words of a final refusal, in an error event."""
    code = CUT_WORDS[outcome]
    return Wording(kind=ReplyKind.FINAL, code=code, message=FINAL_WORDS.get(code, SHUT_WORDS))
