"""Gemini CLI's session files: `~/.gemini/tmp/<project>/chats/session-*.jsonl`, and the one JSON document of older versions.

It keeps no id of a server. A message is written again with the same id when its tools have run, and whole lists of messages stand in `$set` patches:
one row an id, the last usage counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gateway.accounting.usage import UNKNOWN_USAGE, Usage
from gateway.reconcile.json_lines import Row, json_document, json_lines, look, mentions
from gateway.reconcile.record import DispatchRecord, RecordKind, Skipped
from gateway.reconcile.values import believed, count, ident, idents, moment_ms, objects, some, text, total


class GeminiReader:
    name = "gemini"
    about = "Gemini CLI, session files (JSONL, and the older JSON document)"
    caveat = ""

    def claims(self, path: Path) -> bool:
        return any("projectHash" in row and "sessionId" in row for row in look(path)) or _is_document(path)

    def read(self, path: Path) -> Iterator[DispatchRecord | Skipped]:
        session = _Session()
        if _is_document(path):
            whole = json_document(path)
            if isinstance(whole, Skipped):
                yield whole
                return
            session.ident = ident(whole, "sessionId")
            for message in objects(whole, "messages"):
                yield from session.take(f"{path}#{ident(message, 'id')}", message)
        else:
            for line in json_lines(path, _matters):
                if isinstance(line, Skipped):
                    yield line
                    continue
                source, row = f"{path}:{line[0]}", line[1]
                session.ident = session.ident or ident(row, "sessionId")
                for message in [row, *objects(row, "$set", "messages"), *objects(row, "messages")]:
                    yield from session.take(source, message)
        yield from session.rows.values()


def _is_document(path: Path) -> bool:
    """Newer files begin with a line of their own, which has no messages."""
    return not any("projectHash" in row and "messages" not in row for row in look(path)) and mentions(path, '"projectHash"', '"sessionId"', '"messages"')


def _matters(row: Row) -> bool:
    return "type" in row or "sessionId" in row or "$set" in row or "messages" in row


class _Session:
    def __init__(self) -> None:
        self.ident = ""
        self.rows: dict[str, DispatchRecord] = {}

    def take(self, source: str, message: Row) -> Iterator[Skipped]:
        kind, key = message.get("type"), ident(message, "id")
        if kind not in ("gemini", "error"):
            return
        tokens = message.get("tokens")
        usage, problems = believed(source, lambda: _usage(tokens)) if isinstance(tokens, dict) else (UNKNOWN_USAGE, [])
        yield from problems
        moment = moment_ms(message, "timestamp")
        record = DispatchRecord(
            agent=GeminiReader.name,
            source=source,
            kind=RecordKind.ANSWER if kind == "gemini" else RecordKind.LOCAL_ERROR,
            session=self.ident,
            at_ms=moment,
            order=len(self.rows),
            model=text(message, "model"),
            usage=usage,
            tool_call_ids=idents(_servers(call) for call in objects(message, "toolCalls")),
            message=text(message, "content") if kind == "error" else "",
            copy_key=f"{key} {moment}" if key else "",
        )
        before = self.rows.get(key or source)
        self.rows[key or source] = _rewritten(before, record) if before else record


def _rewritten(before: DispatchRecord, record: DispatchRecord) -> DispatchRecord:
    return replace(
        record,
        source=before.source,
        order=before.order,
        usage=before.usage if record.usage == UNKNOWN_USAGE else record.usage,
        tool_call_ids=idents((*before.tool_call_ids, *record.tool_call_ids)),
    )


def _servers(call: object) -> str:
    """Where the server gave a tool call no id, the CLI makes one up from the tool's name."""
    found, name = ident(call, "id"), text(call, "name")
    return "" if name and found.startswith(name) else found


def _usage(tokens: object) -> Usage:
    thoughts = some(tokens, "thoughts")
    answer = count(tokens, "output")
    return Usage(
        input_tokens=total(count(tokens, "input"), some(tokens, "tool")),
        output_tokens=None if answer is None else total(answer, thoughts),
        cached_tokens=some(tokens, "cached"),
        reasoning_tokens=thoughts,
    )
