"""OpenCode's sessions: its database `~/.local/share/opencode/opencode.db` (with the log beside it), or the JSON of `opencode export`.

It keeps no response id: tool-call ids, item ids of the Responses format and the session, which it also sends along, are what there is. Cached tokens stand
outside the input, reasoning outside the output; all zeros is what it writes where nothing was reported.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from gateway.accounting.usage import UNKNOWN_USAGE, Usage
from gateway.errors import RecordProblem
from gateway.reconcile.json_lines import Row, Unreadable, head, json_document, mentions, parse
from gateway.reconcile.record import DispatchRecord, RecordKind, Skipped
from gateway.reconcile.sqlite_file import MAGIC, log_head, opened, tables
from gateway.reconcile.values import at, believed, count, ident, idents, known_version, moment_ms, objects, some, status, text, total

KNOWN_VERSIONS = ("1.",)
_TABLES = frozenset({"session", "message", "part"})
_LOOK_BYTES = 4 * 2**20
_REQUEST_HEADERS = ("x-request-id", "request-id")


@dataclass(slots=True)
class _Message:
    """One message and what its parts add; a part's content is let go."""

    ident: str
    session: str
    info: object
    steps: list[object] = field(default_factory=list)
    """Usage at the end of each step: each is a call."""
    items: list[list[str]] = field(default_factory=lambda: [[]])
    calls: list[list[str]] = field(default_factory=lambda: [[]])
    retries: list[object] = field(default_factory=list)

    def take(self, part: object) -> None:
        self.calls[-1].append(ident(part, "callID"))
        self.items[-1].append(ident(part, "metadata", "openai", "itemId"))
        match at(part, "type"):
            case "step-finish":
                self.steps.append(at(part, "tokens"))
                self.calls.append([])
                self.items.append([])
            case "retry":
                self.retries.append({"error": at(part, "error"), "time": at(part, "time", "created")})


class OpenCodeReader:
    name = "opencode"
    about = "OpenCode, database or export of versions 1.*"
    caveat = ""

    def claims(self, path: Path) -> bool:
        if head(path).startswith(MAGIC):
            start = log_head(path, _LOOK_BYTES)
            return path.name.startswith("opencode") or all(f"CREATE TABLE `{name}`".encode() in start for name in _TABLES)
        return mentions(path, '"info"', '"messages"', '"ses_') and mentions(path, '"slug"', '"projectID"')

    def read(self, path: Path) -> Iterator[DispatchRecord | Skipped]:
        orders: dict[str, int] = {}
        for found in _database(path) if head(path).startswith(MAGIC) else _export(path):
            if isinstance(found, Skipped):
                yield found
                continue
            for row in _rows(f"{path}#{found.ident}", found):
                if isinstance(row, DispatchRecord):
                    order = orders.get(found.session, 0)
                    orders[found.session] = order + 1
                    row = replace(row, order=order)
                yield row


def _database(path: Path) -> Iterator[_Message | Skipped]:
    messages: dict[bytes, _Message] = {}
    try:
        with opened(path) as database:
            if missing := _TABLES - tables(database):
                raise RecordProblem(f"{path}: an SQLite database without the tables {', '.join(sorted(missing))} of OpenCode.")
            for session, version in database.execute("SELECT id, version FROM session"):
                known_version("OpenCode", _decoded(version), f"{path}#{_decoded(session)}", KNOWN_VERSIONS)
            for key, session, data in database.execute("SELECT id, session_id, data FROM message ORDER BY session_id, time_created, id"):
                info = _parsed(data)
                if isinstance(info, Unreadable):
                    yield Skipped(source=f"{path}#{_decoded(key)}", why=str(info))
                elif at(info, "role") == "assistant":
                    messages[key] = _Message(_decoded(key), _decoded(session), info)
            for key, part, data in database.execute("SELECT message_id, id, data FROM part ORDER BY id"):
                if message := messages.get(key):
                    found = _parsed(data)
                    if isinstance(found, Unreadable):
                        yield Skipped(source=f"{path}#{_decoded(part)}", why=str(found))
                    else:
                        message.take(found)
    except (sqlite3.Error, OSError, ValueError, OverflowError) as problem:
        yield Skipped(source=str(path), why=f"no readable SQLite database: {problem}")
    yield from messages.values()


def _decoded(value: object) -> str:
    return ident(value.decode("utf-8", "replace")) if isinstance(value, bytes) else ""


def _parsed(data: object) -> object:
    try:
        return parse(data, strict=True) if isinstance(data, bytes) else None
    except Unreadable as problem:
        return problem


def _export(path: Path) -> Iterator[_Message | Skipped]:
    whole = json_document(path)
    if isinstance(whole, Skipped):
        yield whole
        return
    known_version("OpenCode", text(whole, "info", "version"), str(path), KNOWN_VERSIONS)
    for each in objects(whole, "messages"):
        info = at(each, "info")
        if at(info, "role") == "assistant":
            message = _Message(ident(info, "id"), ident(info, "sessionID") or ident(whole, "info", "id"), info)
            for part in objects(each, "parts"):
                message.take(part)
            yield message


def _rows(source: str, message: _Message) -> Iterator[DispatchRecord | Skipped]:
    info = message.info
    blank = DispatchRecord(
        agent=OpenCodeReader.name,
        source=source,
        session=message.session,
        session_ids=idents((message.session,)),
        begun_ms=moment_ms(info, "time", "created"),
        at_ms=moment_ms(info, "time", "completed"),
        model=text(info, "modelID"),
        finish=text(info, "finish"),
    )
    for number, retry in enumerate(message.retries):
        failed = replace(_failed(blank, at(retry, "error")), at_ms=moment_ms(retry, "time"), begun_ms=None, finish="")
        yield replace(failed, copy_key=f"{message.ident} retry {number}" if message.ident else "")
    several = len(message.steps) > 1
    for number, told in enumerate(message.steps if several else [at(info, "tokens")]):
        usage, problems = believed(source, lambda told=told: _usage(told))  # type: ignore[misc]
        yield from problems
        items, calls = (message.items[number : number + 1], message.calls[number : number + 1]) if several else (message.items, message.calls)
        row = replace(
            blank,
            usage=usage,
            item_ids=idents(each for some_items in items for each in some_items),
            tool_call_ids=idents(each for some_calls in calls for each in some_calls),
            copy_key=f"{message.ident} {number}" if message.ident else "",
        )
        yield _of_its_kind(row, info, last=number == len(message.steps) - 1 or not several)


def _of_its_kind(row: DispatchRecord, info: Row | object, *, last: bool) -> DispatchRecord:
    if isinstance(at(info, "error"), dict) and last:
        return _failed(row, at(info, "error"))
    if row.finish or row.usage != UNKNOWN_USAGE:
        return row
    return replace(row, kind=RecordKind.PLACEHOLDER if row.at_ms else RecordKind.ABORTED)


def _failed(row: DispatchRecord, error: object) -> DispatchRecord:
    headers = at(error, "data", "responseHeaders")
    aborted = at(error, "name") == "MessageAbortedError"
    return replace(
        row,
        kind=RecordKind.ABORTED if aborted else RecordKind.ERROR,
        status=status(error, "data", "statusCode"),
        request_ids=idents(ident(headers, name) for name in _REQUEST_HEADERS),
        message=text(error, "data", "message") or text(error, "name"),
    )


def _usage(told: object) -> Usage:
    read, written, reasoning = some(told, "cache", "read"), some(told, "cache", "write"), some(told, "reasoning")
    whole, output = total(count(told, "input"), read, written), total(count(told, "output"), reasoning)
    if not whole and not output:
        return UNKNOWN_USAGE
    return Usage(input_tokens=whole, output_tokens=output, cached_tokens=read, cache_write_tokens=written, reasoning_tokens=reasoning)
