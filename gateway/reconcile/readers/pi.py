"""pi's sessions: `~/.pi/agent/sessions/--folder--/*.jsonl`.

Cached parts stand outside the input. Items of the Responses format hide in other fields: behind a bar in the tool call's id, in a text's signature.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gateway.accounting.usage import UNKNOWN_USAGE, Usage
from gateway.errors import RecordProblem
from gateway.reconcile.json_lines import Row, Unreadable, json_lines, look, parse
from gateway.reconcile.record import DispatchRecord, RecordKind, Skipped
from gateway.reconcile.values import MAX_TEXT, at, believed, count, ident, idents, moment_ms, objects, some, text, total

KNOWN_FORMATS = (1, 2, 3)
_SENDS_ITS_SESSION = "openai-responses"
_STATUS = re.compile(r"\A(?:Error: )?([1-5]\d\d)\b")
_KINDS = {"error": RecordKind.ERROR, "aborted": RecordKind.ABORTED}


class PiReader:
    name = "pi"
    about = "pi, session files of formats 1 to 3"
    caveat = ""

    def claims(self, path: Path) -> bool:
        return any(row.get("type") == "session" and isinstance(row.get("id"), str) and "cwd" in row for row in look(path)[:1])

    def read(self, path: Path) -> Iterator[DispatchRecord | Skipped]:
        session, order = "", 0
        for line in json_lines(path, _matters):
            if isinstance(line, Skipped):
                yield line
                continue
            source, row = f"{path}:{line[0]}", line[1]
            if row.get("type") == "session":
                if (found := row.get("version", 1)) not in KNOWN_FORMATS:
                    raise RecordProblem(f"{source}: pi's session of format {str(found)[:20]}, which is not known here. Known: 1 to 3.")
                session = ident(row, "id")
                continue
            record, problems = _record(source, row, at(row, "message"))
            yield from problems
            sent = at(row, "message", "api") == _SENDS_ITS_SESSION
            yield replace(record, session=session, session_ids=idents((session,)) if sent else (), order=order)
            order += 1


def _matters(row: Row) -> bool:
    return row.get("type") == "session" or (row.get("type") == "message" and at(row, "message", "role") == "assistant")


def _record(source: str, row: Row, message: object) -> tuple[DispatchRecord, list[Skipped]]:
    kind = _KINDS.get(text(message, "stopReason"), RecordKind.ANSWER)
    usage, problems = believed(source, lambda: _usage(at(message, "usage")))
    words = text(message, "errorMessage")
    code = _STATUS.match(words)
    items, calls = _ids(message)
    record = DispatchRecord(
        agent=PiReader.name,
        source=source,
        kind=kind,
        begun_ms=moment_ms(message, "timestamp"),
        at_ms=moment_ms(row, "timestamp") or moment_ms(message, "timestamp"),
        model=text(message, "model"),
        usage=usage,
        response_id=ident(message, "responseId"),
        item_ids=items,
        tool_call_ids=calls,
        status=int(code.group(1)) if code and kind is RecordKind.ERROR else None,
        finish=text(message, "rawStopReason"),
        message=words,
        copy_key=f"{ident(row, 'id')} {text(row, 'timestamp')}" if row.get("id") else "",
    )
    return record, problems


def _ids(message: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    items, calls = [], []
    for block in objects(message, "content"):
        if block.get("type") == "toolCall":
            call, _, item = ident(block, "id").partition("|")
            calls.append(call)
            items.append(item)
        items += [_signed(block.get("textSignature")), _signed(block.get("thinkingSignature"))]
    return idents(items), idents(calls)


def _signed(signature: object) -> str:
    """A signature is an item as JSON, the item's bare id, or a provider's opaque text, which is no id."""
    if not isinstance(signature, str) or not signature:
        return ""
    if signature.startswith("{"):
        try:
            return ident(parse(signature.encode("utf-8", "replace")), "id")
        except Unreadable:
            return ""
    return signature if len(signature) <= MAX_TEXT and re.fullmatch(r"(msg|rs|fc)_[\w-]+", signature) else ""


def _usage(told: object) -> Usage:
    """All zeros is what it writes where nothing was reported."""
    read, written = some(told, "cacheRead"), some(told, "cacheWrite")
    whole, output = total(count(told, "input"), read, written), count(told, "output")
    if not whole and not output:
        return UNKNOWN_USAGE
    return Usage(input_tokens=whole, output_tokens=output, cached_tokens=read, cache_write_tokens=written, reasoning_tokens=some(told, "reasoning"))
