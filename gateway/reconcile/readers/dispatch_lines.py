"""Our own form for any driver, `gateway-dispatch-1`: one JSON object a line, one line a request.

Written by `gateway.client.DispatchWriter` or by anything else; its schema lies beside that writer. A line with the id of an earlier one replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gateway.accounting.usage import Usage
from gateway.errors import RecordProblem
from gateway.reconcile.json_lines import Row, json_lines, look
from gateway.reconcile.record import DispatchRecord, RecordKind, Skipped
from gateway.reconcile.values import NotACount, at, count, flag, ident, idents, moment_ms, status, text

FORM = "gateway-dispatch-1"
_FAMILY = "gateway-dispatch-"


class _Wrong(Exception):
    """The text says which field is not what the schema asks for."""


class DispatchLinesReader:
    name = "gateway-dispatch"
    about = "any driver, lines of the form gateway-dispatch-1"
    caveat = ""

    def claims(self, path: Path) -> bool:
        return any(text(row, "form").startswith(_FAMILY) for row in look(path))

    def read(self, path: Path) -> Iterator[DispatchRecord | Skipped]:
        rows: dict[str, DispatchRecord] = {}
        for line in json_lines(path, lambda row: True):
            if isinstance(line, Skipped):
                yield line
                continue
            source, row = f"{path}:{line[0]}", line[1]
            if (found := text(row, "form")) != FORM:
                if found.startswith(_FAMILY):
                    raise RecordProblem(f"{source}: a line of the form {found[:40]}, which is not known here. Known: {FORM}.")
                yield Skipped(source=source, why=f"no line of the form {FORM}")
                continue
            try:
                record = _record(source, row)
            except (_Wrong, NotACount) as problem:
                yield Skipped(source=source, why=str(problem))
                continue
            key = record.copy_key or source
            rows[key] = replace(record, order=rows[key].order if key in rows else len(rows))
        yield from rows.values()


def _record(source: str, row: Row) -> DispatchRecord:
    if (kind := row.get("kind", "answer")) not in tuple(RecordKind):
        raise _Wrong(f"kind is {str(kind)[:40]!r}, not one of {', '.join(RecordKind)}")
    driver, session, key = _name(row, "driver"), _name(row, "session"), _name(row, "id")
    return DispatchRecord(
        agent=DispatchLinesReader.name,
        source=source,
        kind=RecordKind(str(kind)),
        session=session or driver,
        begun_ms=_moment(row, "begun_ms"),
        at_ms=_moment(row, "ended_ms"),
        model=_name(row, "model"),
        model_is_servers=flag(row, "model_is_servers"),
        usage=_usage(row),
        usage_is_own=flag(row, "usage_is_own"),
        response_id=_name(row, "response_id"),
        item_ids=_names(row, "item_ids"),
        tool_call_ids=_names(row, "tool_call_ids"),
        request_ids=_names(row, "request_ids"),
        session_ids=_names(row, "session_ids"),
        status=_status(row),
        finish=_name(row, "finish"),
        message=text(row, "message"),
        copy_key=f"{driver} {session} {key}" if key else "",
    )


def _usage(row: Row) -> Usage:
    told = row.get("usage")
    if told is not None and not isinstance(told, dict):
        raise _Wrong("usage is no object")
    usage = Usage(
        input_tokens=count(told, "input_tokens"),
        output_tokens=count(told, "output_tokens"),
        cached_tokens=count(told, "cached_tokens"),
        cache_write_tokens=count(told, "cache_write_tokens"),
        reasoning_tokens=count(told, "reasoning_tokens"),
    )
    for part, whole in (("cached_tokens", "input_tokens"), ("cache_write_tokens", "input_tokens"), ("reasoning_tokens", "output_tokens")):
        if (getattr(usage, part) or 0) > (getattr(usage, whole) or 0):
            raise _Wrong(f"usage.{part} is more than usage.{whole}, of which it is a part")
    return usage


def _name(row: Row, field: str) -> str:
    if row.get(field) is None:
        return ""
    if not (found := ident(row, field)):
        raise _Wrong(f"{field} is no name: a printable string of 1 to 256 letters")
    return found


def _names(row: Row, field: str) -> tuple[str, ...]:
    found = row.get(field, [])
    if not isinstance(found, list) or not all(ident(each) for each in found):
        raise _Wrong(f"{field} is no list of names")
    return idents(found)


def _moment(row: Row, field: str) -> int | None:
    found = row.get(field)
    if found is not None and (not isinstance(found, int) or moment_ms(found) is None):
        raise _Wrong(f"{field} is {str(found)[:40]}: no moment in Unix milliseconds")
    return moment_ms(found)


def _status(row: Row) -> int | None:
    if at(row, "status") is not None and status(row, "status") is None:
        raise _Wrong(f"status is {str(row.get('status'))[:40]}: no HTTP status")
    return status(row, "status")
