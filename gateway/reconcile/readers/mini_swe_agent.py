"""mini-swe-agent's trajectories: the file of `-o`, which keeps each raw answer of the model server.

Its tries again leave nothing; an exception that ended it stands as its last message. Killed, it has written no more than its last step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gateway.accounting.usage import Usage
from gateway.errors import RecordProblem
from gateway.reconcile.json_lines import Row, json_document, mentions
from gateway.reconcile.record import DispatchRecord, RecordKind, Skipped
from gateway.reconcile.values import at, believed, count, ident, idents, moment_ms, objects, text

KNOWN_FORMATS = ("mini-swe-agent-1", "mini-swe-agent-1.1")

_STATUS_OF = {
    "BadRequestError": 400,
    "ContextWindowExceededError": 400,
    "AuthenticationError": 401,
    "PermissionDeniedError": 403,
    "NotFoundError": 404,
    "UnprocessableEntityError": 422,
    "RateLimitError": 429,
    "InternalServerError": 500,
    "ServiceUnavailableError": 503,
}
"""The exceptions of the library through which it calls are named after statuses."""


class MiniSweAgentReader:
    name = "mini-swe-agent"
    about = "mini-swe-agent, trajectories of formats 1 and 1.1"
    caveat = ""

    def claims(self, path: Path) -> bool:
        return mentions(path, '"model_stats"') and (mentions(path, '"mini_version"') or mentions(path, '"trajectory_format"'))

    def read(self, path: Path) -> Iterator[DispatchRecord | Skipped]:
        whole = json_document(path)
        if isinstance(whole, Skipped):
            yield whole
            return
        found = text(whole, "trajectory_format")
        if found not in KNOWN_FORMATS:
            raise RecordProblem(f"{path}: a trajectory of format {found or 'unnamed'}, which is not known here. Known: {', '.join(KNOWN_FORMATS)}.")
        order = 0
        for number, message in enumerate(objects(whole, "messages")):
            source = f"{path}#messages[{number}]"
            for row in _rows(source, message):
                if isinstance(row, DispatchRecord):
                    row, order = replace(row, session=str(path), order=order), order + 1
                yield row


def _rows(source: str, message: Row) -> Iterator[DispatchRecord | Skipped]:
    extra = message.get("extra")
    response = at(extra, "response")
    if message.get("role") == "exit" and at(extra, "exception_str"):
        words = text(extra, "exception_str")
        status = _STATUS_OF.get(text(extra, "exit_status"))
        heard = status is not None or "APIError" in words
        kind = RecordKind.ERROR if heard else RecordKind.LOCAL_ERROR
        yield DispatchRecord(agent=MiniSweAgentReader.name, source=source, kind=kind, status=status, message=words, at_ms=_moment(extra))
    if not isinstance(response, dict):
        return
    usage, problems = believed(source, lambda: _usage(at(response, "usage")))
    yield from problems
    yield DispatchRecord(
        agent=MiniSweAgentReader.name,
        source=source,
        at_ms=_moment(extra),
        model=text(response, "model"),
        model_is_servers=True,
        usage=usage,
        response_id=ident(response, "id"),
        tool_call_ids=idents(ident(call, "id") for choice in _messages(response) for call in objects(choice, "tool_calls")),
        finish=text(response, "choices", 0, "finish_reason") or text(response, "status"),
    )


def _messages(response: object) -> list[object]:
    return [choice.get("message") for choice in objects(response, "choices")]


def _moment(extra: object) -> int | None:
    return moment_ms(extra, "timestamp", unit_ms=1000)


def _usage(told: object) -> Usage:
    if at(told, "prompt_tokens") is None and at(told, "input_tokens") is not None:  # it can also speak the Responses format
        return Usage(
            input_tokens=count(told, "input_tokens"),
            output_tokens=count(told, "output_tokens"),
            cached_tokens=count(told, "input_tokens_details", "cached_tokens"),
            reasoning_tokens=count(told, "output_tokens_details", "reasoning_tokens"),
        )
    return Usage(
        input_tokens=count(told, "prompt_tokens"),
        output_tokens=count(told, "completion_tokens"),
        cached_tokens=count(told, "prompt_tokens_details", "cached_tokens"),
        reasoning_tokens=count(told, "completion_tokens_details", "reasoning_tokens"),
    )
