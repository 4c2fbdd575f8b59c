"""Every error as JSON: a code for programs; problem, cause and mend for people."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import orjson
from aiohttp import web
from pydantic import ValidationError

from gateway.accounting.limit import Shortfall
from gateway.errors import ClockUncertain, CommandRejected, ConfigurationError, LedgerCorrupt, LedgerUnavailable, MixedLabels, NotFound, ZoneUnclear
from gateway.runs.declined import Declined

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_log = logging.getLogger(__name__)

STATUS = {"invalid": 400, "not_found": 404, "conflict": 409, "run_budget_reached": 409, "window_over": 409}
"""HTTP status of a declined request, by its code."""


class Problem(Exception):
    """An answer that is an error."""

    def __init__(
        self,
        status: int,
        code: str,
        problem: str,
        cause: str,
        mend: str,
        shortfall: Shortfall | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(problem)
        self.status = status
        self.code = code
        self.problem = problem
        self.cause = cause
        self.mend = mend
        self.shortfall = shortfall
        self.more = dict(more or {})
        """What a program may want to know beside."""
        self.headers: dict[str, str] = {}

    def response(self) -> web.Response:
        error: dict[str, object] = {
            "code": self.code,
            "message": " ".join(part for part in (self.problem, self.cause, self.mend) if part),
            "problem": self.problem,
            "cause": self.cause,
            "mend": self.mend,
            **self.more,
        }
        if self.shortfall is not None:
            error["limit"] = limit_view(self.shortfall)
        return web.json_response(body=orjson.dumps({"error": error}), status=self.status, headers=self.headers)


def limit_view(shortfall: Shortfall) -> dict[str, object]:
    view: dict[str, object] = {
        "name": shortfall.name,
        "ceiling": shortfall.ceiling,
        "settled": shortfall.settled,
        "reserved": shortfall.reserved,
        "asked": shortfall.asked,
    }
    if shortfall.resets_at_ms is not None:
        view["resets_at_ms"] = shortfall.resets_at_ms
    if shortfall.origin:
        view["origin"] = shortfall.origin
    return view


@web.middleware
async def answer_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as refused:
        if refused.status < 400:
            raise
        return _problem_of_http(request, refused).response()
    except Exception as error:
        return problem_of(error).response()


def problem_of(error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case Declined():
            return Problem(STATUS[error.code], error.code, error.problem, error.cause, error.mend, error.shortfall)
        case ValidationError():
            return _problem_of_body(error)
        case ConfigurationError():
            return Problem(400, "invalid", "This policy can't be used.", str(error), "Mend the file; `gateway policy check FILE` tells whether it is right.")
        case NotFound():
            return Problem(404, "not_found", str(error), "The ledger has no such entry.", "The listing commands show what there is.")
        case MixedLabels():
            mend = "Ask for it with across_labels (--across-labels), or sum by label."
            return Problem(400, "mixed_labels", "No total is given over several labels.", f"{error}.", mend)
        case ZoneUnclear():
            return Problem(400, "zone", "Usage by day needs a time zone.", f"{error}.", "Name it (--zone), e.g. Europe/Berlin, or ask of one campaign.")
        case CommandRejected():
            return Problem(
                409, "conflict", "The ledger did not write this.", str(error), "See what stands, with the show commands, and ask for what may follow."
            )
        case LedgerUnavailable():
            return Problem(503, "ledger_unavailable", "The ledger can't be written.", str(error), "Free disk space or mend the disk, then ask again.")
        case ClockUncertain():
            return Problem(503, "clock", "Nothing begins while the clock is uncertain.", str(error), "If the clock is right: `gateway ledger clock --accept`.")
        case LedgerCorrupt():
            return Problem(
                500, "ledger_corrupt", "The ledger does not fit together.", str(error), "`gateway ledger verify` names the first entry; keep the file."
            )
        case _:
            _log.error("control request failed", exc_info=error)
            return Problem(500, "internal", "The gateway failed at this.", type(error).__name__, "Its log has the details.")


_WRONG: Final[Mapping[str, str]] = {
    "extra_forbidden": "there is no such field",
    "missing": "must be given",
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "less_than": "must be less than {lt}",
    "string_too_short": "must have {min_length} character or more",
    "string_too_long": "must have {max_length} characters or fewer",
    "too_short": "must have {min_length} entry or more",
    "too_long": "must have {max_length} entries or fewer",
    "string_pattern_mismatch": "must be of the form {pattern}",
    "json_invalid": "is no JSON: {error}",
}
"""What the library found -> what to write."""


def _problem_of_body(error: ValidationError) -> Problem:
    found = []
    for each in error.errors(include_url=False, include_input=False):
        words = _WRONG[each["type"]].format_map(each.get("ctx", {})) if each["type"] in _WRONG else each["msg"]
        found.append(f"{'.'.join(map(str, each['loc'])) or 'body'}: {words}")
    return Problem(400, "invalid", "This request can't be read.", "; ".join(found) + ".", "Mend what is named and ask again.")


def _problem_of_http(request: web.Request, refused: web.HTTPException) -> Problem:
    cause = f"{request.method} {request.path} is answered with {refused.status} {refused.reason}."
    code = {404: "not_found", 405: "invalid"}.get(refused.status, "invalid")
    problem = Problem(refused.status, code, "The control plane has no such request.", cause, "Client and gateway should be of the same version.")
    if isinstance(refused, web.HTTPMethodNotAllowed):
        problem.headers["Allow"] = ", ".join(sorted(refused.allowed_methods))
    return problem
