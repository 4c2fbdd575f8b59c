"""Claude Code's session files: `~/.claude/projects/<folder>/<session>.jsonl`.

One message is several lines, one a content block, each with the whole usage; resuming and forking copy lines into other files: one row a message, the
last usage counts. Refused and failed tries are rows of their own where they bear a request id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gateway.accounting.usage import Usage
from gateway.reconcile.json_lines import Row, json_lines, look
from gateway.reconcile.record import DispatchRecord, RecordKind, Skipped
from gateway.reconcile.values import at, believed, count, flag, ident, idents, known_version, moment_ms, objects, some, status, text, total

KNOWN_VERSIONS = ("1.", "2.")
MADE_UP_MODEL = "<synthetic>"


class ClaudeReader:
    name = "claude"
    about = "Claude Code, session files of versions 1 and 2"
    caveat = ""

    def claims(self, path: Path) -> bool:
        return any(
            isinstance(row.get("sessionId"), str)
            and (("isSidechain" in row and "uuid" in row and not isinstance(at(row, "message", "parts"), list)) or row.get("type") == "api-request")
            and row.get("subtype") != "ui_telemetry"
            for row in look(path)
        )

    def read(self, path: Path) -> Iterator[DispatchRecord | Skipped]:
        begun: dict[str, int | None] = {}
        rows: dict[str, DispatchRecord] = {}
        for line in json_lines(path, _matters):
            if isinstance(line, Skipped):
                yield line
                continue
            number, row = line
            source = f"{path}:{number}"
            known_version("Claude Code", text(row, "version"), source, KNOWN_VERSIONS)
            if row.get("type") == "api-request":
                begun[ident(row, "id")] = moment_ms(row, "timestamp")
                continue
            record, problems = _record(row, source, begun)
            yield from problems
            key = f"{record.kind is RecordKind.ERROR} {record.response_id} {record.request_ids}" if record.copy_key else source
            rows[key] = _later(rows[key], record) if key in rows else replace(record, order=len(rows))
        yield from rows.values()


def _matters(row: Row) -> bool:
    kind = row.get("type")
    return kind in ("assistant", "api-request") or (kind == "system" and row.get("subtype") == "api_error")


def _record(row: Row, source: str, begun: dict[str, int | None]) -> tuple[DispatchRecord, list[Skipped]]:
    session = ident(row, "sessionId")
    record = DispatchRecord(
        agent=ClaudeReader.name,
        source=source,
        session="/".join(idents((session, ident(row, "agentId")))),
        session_ids=idents((session,)),
        begun_ms=begun.get(ident(row, "requestRef")),
        at_ms=moment_ms(row, "timestamp"),
    )
    if row.get("type") == "system":
        return _failed(record, ident(row, "error", "requestId"), status(row, "error", "status"), text(row, "error", "formatted")), []
    if flag(row, "isApiErrorMessage") or at(row, "message", "model") == MADE_UP_MODEL:
        failed = _failed(record, ident(row, "requestId"), status(row, "apiErrorStatus"), text(row, "message", "content", 0, "text"))
        return (failed if flag(row, "isApiErrorMessage") else replace(failed, kind=RecordKind.PLACEHOLDER, message="")), []
    message = at(row, "message")
    usage, problems = believed(source, lambda: _usage(at(message, "usage")))
    response, request = ident(message, "id"), ident(row, "requestId")
    answer = replace(
        record,
        kind=RecordKind.ABORTED if flag(row, "isAbortedMidStream") else RecordKind.ANSWER,
        model=text(message, "model"),
        model_is_servers=True,
        usage=usage,
        response_id=response,
        request_ids=idents((request,)),
        tool_call_ids=idents(ident(block, "id") for block in objects(message, "content") if block.get("type") == "tool_use"),
        finish=text(message, "stop_reason"),
        copy_key=f"{response} {request} {record.at_ms}" if response else "",
    )
    return answer, problems


def _failed(record: DispatchRecord, request: str, code: int | None, words: str) -> DispatchRecord:
    """The last try's failure stands twice, as a try and as the words shown: the request id makes them one."""
    heard = bool(request) or code is not None
    return replace(
        record,
        kind=RecordKind.ERROR if heard else RecordKind.LOCAL_ERROR,
        request_ids=idents((request,)),
        status=code,
        message=words,
        copy_key=f"failed {request} {record.at_ms}" if request else "",
    )


def _usage(usage: object) -> Usage:
    read, written = count(usage, "cache_read_input_tokens"), count(usage, "cache_creation_input_tokens")
    return Usage(
        input_tokens=total(count(usage, "input_tokens"), read, written),
        output_tokens=count(usage, "output_tokens"),
        cached_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=some(usage, "output_tokens_details", "thinking_tokens"),
    )


def _later(first: DispatchRecord, last: DispatchRecord) -> DispatchRecord:
    return replace(
        last,
        source=first.source,
        session=first.session,
        order=first.order,
        copy_key=first.copy_key,
        begun_ms=first.begun_ms,
        tool_call_ids=idents((*first.tool_call_ids, *last.tool_call_ids)),
        finish=last.finish or first.finish,
        status=last.status or first.status,
    )
