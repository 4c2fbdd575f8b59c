"""GitHub Copilot CLI's sessions: `~/.copilot/session-state/<id>/events.jsonl`.

A usage line names the server's response id; the message line that follows it has the tool calls. A failed call has no usage line, only an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gateway.accounting.usage import Usage
from gateway.errors import RecordProblem
from gateway.reconcile.json_lines import Row, json_lines, look
from gateway.reconcile.record import DispatchRecord, RecordKind, Skipped
from gateway.reconcile.values import at, believed, count, ident, idents, known_version, moment_ms, objects, some, status, text

KNOWN_VERSIONS = ("1.0.", "0.")
KNOWN_FORMAT = 1
_USAGE_LINES = ("session.usage_record", "assistant.usage")
_KINDS = frozenset({*_USAGE_LINES, "session.start", "assistant.message", "session.error", "abort"})


class CopilotReader:
    name = "copilot"
    about = "Copilot CLI, session events of versions 1.0 and 0"
    caveat = ""

    def claims(self, path: Path) -> bool:
        return any(row.get("type") == "session.start" and isinstance(at(row, "data", "sessionId"), str) and "parentId" in row for row in look(path))

    def read(self, path: Path) -> Iterator[DispatchRecord | Skipped]:
        session, order = "", 0
        waiting: DispatchRecord | None = None
        for line in json_lines(path, lambda row: text(row, "type") in _KINDS):
            if isinstance(line, Skipped):
                yield line
                continue
            source, row = f"{path}:{line[0]}", line[1]
            data = row.get("data")
            if row["type"] == "session.start":
                _check(source, data)
                session = ident(data, "sessionId")
                continue
            if row["type"] == "assistant.message":
                if waiting and at(data, "apiCallId") in (None, waiting.response_id):
                    calls = (ident(each, "toolCallId") for each in objects(data, "toolRequests"))
                    waiting = replace(waiting, tool_call_ids=idents((*waiting.tool_call_ids, *calls)))
                continue
            record, problems = _record(source, row, data)
            yield from problems
            if waiting:
                yield waiting
            waiting = replace(record, session=session, order=order)
            order += 1
        if waiting:
            yield waiting


def _check(source: str, data: object) -> None:
    known_version("Copilot CLI", text(data, "copilotVersion"), source, KNOWN_VERSIONS)
    found = at(data, "version")
    if found not in (None, KNOWN_FORMAT):
        raise RecordProblem(f"{source}: Copilot CLI's events of format {str(found)[:20]}, which is not known here. Known: {KNOWN_FORMAT}.")


def _record(source: str, row: Row, data: object) -> tuple[DispatchRecord, list[Skipped]]:
    record = DispatchRecord(agent=CopilotReader.name, source=source, at_ms=moment_ms(row, "timestamp"))
    if row["type"] == "abort":
        return replace(record, kind=RecordKind.ABORTED, message=text(data, "reason")), []
    if row["type"] == "session.error":
        code = status(data, "statusCode")
        return replace(record, kind=RecordKind.ERROR if code else RecordKind.LOCAL_ERROR, status=code, message=text(data, "message")), []
    told = at(data, "usage") if isinstance(at(data, "usage"), dict) else data
    usage, problems = believed(source, lambda: _usage(told))
    took = at(told, "duration")
    begun = record.at_ms - round(took) if record.at_ms and isinstance(took, int | float) and 0 <= took < record.at_ms else None
    response = ident(told, "apiCallId")
    return replace(
        record, begun_ms=begun, model=text(told, "model"), usage=usage, response_id=response, copy_key=f"{response} {record.at_ms}" if response else ""
    ), problems


def _usage(told: object) -> Usage:
    return Usage(
        input_tokens=count(told, "inputTokens"),
        output_tokens=count(told, "outputTokens"),
        cached_tokens=some(told, "cacheReadTokens"),
        cache_write_tokens=some(told, "cacheWriteTokens"),
        reasoning_tokens=some(told, "reasoningTokens"),
    )
