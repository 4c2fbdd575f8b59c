"""Qwen Code's records: `~/.qwen/projects/<folder>/chats/<session>.jsonl`, and the monthly `~/.qwen/usage/token-usage-*.jsonl`.

The chat file says of each answer its response id and usage, on the line before the answer itself; the monthly file says the usage again, without an id.
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

KNOWN_VERSIONS = ("0.",)
KNOWN_TOTALS_SCHEMA = 1
_ANSWERED = "qwen-code.api_response"
_FAILED = "qwen-code.api_error"
_TOOL = "qwen-code.tool_call"


class QwenReader:
    name = "qwen"
    about = "Qwen Code, chat files and monthly token usage of versions 0.*"
    caveat = ""

    def claims(self, path: Path) -> bool:
        return any(
            isinstance(row.get("sessionId"), str)
            and (row.get("subtype") == "ui_telemetry" or ("uuid" in row and isinstance(at(row, "message", "parts"), list)) or _is_monthly(row))
            for row in look(path)
        )

    def read(self, path: Path) -> Iterator[DispatchRecord | Skipped]:
        waiting: DispatchRecord | None = None
        order = 0
        for line in json_lines(path, _matters):
            if isinstance(line, Skipped):
                yield line
                continue
            source, row = f"{path}:{line[0]}", line[1]
            event = at(row, "systemPayload", "uiEvent")
            if waiting and (calls := _tool_calls(row, event, waiting)):
                waiting = replace(waiting, tool_call_ids=idents((*waiting.tool_call_ids, *calls)))
            found = _record(source, row, event, told=waiting is not None)
            if found is None:
                continue
            record, problems = found
            yield from problems
            if waiting:
                yield waiting
            waiting, order = replace(record, order=order), order + 1
        if waiting:
            yield waiting


def _is_monthly(row: Row) -> bool:
    return "schemaVersion" in row and "inputTokens" in row and "localMonth" in row


def _matters(row: Row) -> bool:
    return row.get("subtype") == "ui_telemetry" or row.get("type") == "assistant" or _is_monthly(row)


def _tool_calls(row: Row, event: object, waiting: DispatchRecord) -> tuple[str, ...]:
    if at(event, "event.name") == _TOOL:
        return (ident(event, "call_id"),) if waiting.response_id and at(event, "response_id") == waiting.response_id else ()
    if row.get("type") != "assistant":
        return ()
    return tuple(ident(part, "functionCall", "id") for part in objects(row, "message", "parts"))


def _record(source: str, row: Row, event: object, *, told: bool) -> tuple[DispatchRecord, list[Skipped]] | None:
    session = ident(row, "sessionId")
    record = DispatchRecord(agent=QwenReader.name, source=source, session=session, at_ms=moment_ms(row, "timestamp"), model_is_servers=True)
    if _is_monthly(row):
        if row.get("schemaVersion") != KNOWN_TOTALS_SCHEMA:
            raise RecordProblem(
                f"{source}: Qwen Code's token usage of schema {str(row.get('schemaVersion'))[:20]}, which is not known here. Known: {KNOWN_TOTALS_SCHEMA}."
            )
        record = replace(record, echo=True)
        return _answer(record, row, row.get("timestamp"), ("inputTokens", "outputTokens", "cachedTokens", "thoughtsTokens"), "apiDurationMs")
    known_version("Qwen Code", text(row, "version"), source, KNOWN_VERSIONS)
    name = at(event, "event.name")
    if name == _ANSWERED:
        fields = ("input_token_count", "output_token_count", "cached_content_token_count", "thoughts_token_count")
        answer, problems = _answer(record, event, at(event, "event.timestamp"), fields, "duration_ms")
        return replace(answer, response_id=ident(event, "response_id"), status=status(event, "status_code")), problems
    if name == _FAILED:
        return _failure(record, event), []
    if row.get("type") == "assistant" and not told and isinstance(row.get("usageMetadata"), dict):
        fields = ("promptTokenCount", "candidatesTokenCount", "cachedContentTokenCount", "thoughtsTokenCount")
        answer, problems = _answer(replace(record, model=text(row, "model")), row.get("usageMetadata"), None, fields, "")
        calls = idents(ident(part, "functionCall", "id") for part in objects(row, "message", "parts"))
        return replace(answer, model=text(row, "model"), tool_call_ids=calls), problems
    return None


def _answer(record: DispatchRecord, told: object, moment: object, fields: tuple[str, str, str, str], duration: str) -> tuple[DispatchRecord, list[Skipped]]:
    usage, problems = believed(
        record.source,
        lambda: Usage(
            input_tokens=count(told, fields[0]),
            output_tokens=count(told, fields[1]),
            cached_tokens=some(told, fields[2]),
            reasoning_tokens=some(told, fields[3]),
        ),
    )
    ended = moment_ms(moment) or record.at_ms
    took = at(told, duration) if duration else None
    begun = ended - took if ended and isinstance(took, int) and 0 <= took < ended else None
    copied = f"{record.session} {moment}" if isinstance(moment, str) else ""
    return replace(record, usage=usage, at_ms=ended, begun_ms=begun, model=text(told, "model"), copy_key=copied), problems


def _failure(record: DispatchRecord, event: object) -> DispatchRecord:
    """What it calls the response id of a failure is the server's request id, where there was one."""
    request, code = ident(event, "response_id"), status(event, "status_code")
    return replace(
        record,
        kind=RecordKind.ERROR if request or code else RecordKind.LOCAL_ERROR,
        at_ms=moment_ms(event, "event.timestamp") or record.at_ms,
        model=text(event, "model"),
        model_is_servers=False,
        request_ids=idents((request,)),
        status=code,
        message=text(event, "error_message"),
    )
