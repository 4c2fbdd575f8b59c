"""Inspect AI's logs: `.eval` (a zip with one document a sample) or `.json`.

A model event is a call, and keeps response id and request ids, those of a refused call too. Cached tokens stand outside the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gateway.accounting.usage import UNKNOWN_USAGE, Usage
from gateway.errors import RecordProblem
from gateway.reconcile.archive import members
from gateway.reconcile.json_lines import BOM, document, head, json_document, mentions
from gateway.reconcile.record import DispatchRecord, RecordKind, Skipped
from gateway.reconcile.values import at, believed, count, flag, ident, idents, moment_ms, objects, status, text, total

KNOWN_FORMATS = (2,)
MAX_NESTING = 32
_ZIP = b"PK\x03\x04"


class InspectReader:
    name = "inspect"
    about = "Inspect AI, logs of format 2 (.eval and .json)"
    caveat = ""

    def claims(self, path: Path) -> bool:
        start = head(path)
        if start.startswith(_ZIP):
            return path.suffix == ".eval" or b"_journal/start.json" in start
        return start.removeprefix(BOM).lstrip().startswith(b"{") and mentions(path, '"eval"', '"run_id"', '"task"') and mentions(path, '"inspect_ai"')

    def read(self, path: Path) -> Iterator[DispatchRecord | Skipped]:
        if head(path).startswith(_ZIP):
            yield from _archive(path)
            return
        whole = json_document(path)
        if isinstance(whole, Skipped):
            yield whole
            return
        _check(str(path), whole)
        for sample in objects(whole, "samples"):
            yield from _sample(str(path), sample)


def _archive(path: Path) -> Iterator[DispatchRecord | Skipped]:
    for member in members(path, lambda name: name in ("header.json", "_journal/start.json") or name.startswith("samples/")):
        if isinstance(member, Skipped):
            yield member
            continue
        source = f"{path}!{member[0][:200]}"
        found = document(member[1], source)
        if isinstance(found, Skipped):
            yield found
        elif member[0].startswith("samples/"):
            yield from _sample(source, found)
        else:
            _check(source, found)


def _check(source: str, header: object) -> None:
    if (found := at(header, "version")) not in KNOWN_FORMATS:
        raise RecordProblem(f"{source}: an Inspect log of format {str(found)[:20]}, which is not known here. Known: 2.")


def _sample(source: str, sample: object) -> Iterator[DispatchRecord | Skipped]:
    session = ident(sample, "uuid") or f"{at(sample, 'id')!s:.80}/{at(sample, 'epoch')!s:.10}"
    order, seen = 0, set[str]()
    for event in _events(sample, 0):
        if event.get("event") != "model":
            continue
        key = ident(event, "uuid")
        if key and key in seen:
            continue
        seen.add(key)
        where = f"{source}#{key or f'{session}[{order}]'}"
        usage, problems = believed(where, lambda event=event: _usage(at(event, "output", "usage")))  # type: ignore[misc]
        yield from problems
        yield replace(_record(where, event), session=session, order=order, usage=usage, copy_key=key)
        order += 1


def _events(holder: object, depth: int) -> Iterator[dict[str, object]]:
    """Older logs nest the events of a tool or subtask in its own."""
    for event in objects(holder, "events"):
        yield event
        if depth < MAX_NESTING:
            yield from _events(event, depth + 1)


def _record(source: str, event: dict[str, object]) -> DispatchRecord:
    output, answer = at(event, "output"), at(event, "call", "response")
    requests = objects(event, "request_ids")
    heard = next((found for each in reversed(requests) if (found := status(each, "status"))), None)
    kind, words = RecordKind.ANSWER, ""
    if at(event, "error"):
        words = text(event, "error")
        kind = RecordKind.ERROR if requests else RecordKind.LOCAL_ERROR
    elif flag(event, "pending"):
        kind = RecordKind.ABORTED
    elif at(event, "cache") == "read":
        kind, words = RecordKind.PLACEHOLDER, "taken from its own cache"
    failed = kind is not RecordKind.ANSWER
    return DispatchRecord(
        agent=InspectReader.name,
        source=source,
        kind=kind,
        begun_ms=moment_ms(event, "timestamp"),
        at_ms=moment_ms(event, "completed"),
        model="" if failed else text(output, "model"),
        model_is_servers=not failed,
        response_id=ident(output, "response_id") or ident(answer, "id"),
        tool_call_ids=idents(ident(call, "id") for choice in objects(output, "choices") for call in objects(choice, "message", "tool_calls")),
        request_ids=idents(ident(each, "id") for each in requests),
        session_ids=idents((ident(event, "call", "request", "extra_headers", "x-irid"),)),
        status=heard,
        finish=text(answer, "choices", 0, "finish_reason") or ("" if failed else text(output, "choices", 0, "stop_reason")),
        message=words,
    )


def _usage(told: object) -> Usage:
    read, written = count(told, "input_tokens_cache_read"), count(told, "input_tokens_cache_write")
    whole, output = total(count(told, "input_tokens"), read, written), count(told, "output_tokens")
    if not whole and not output:
        return UNKNOWN_USAGE
    return Usage(input_tokens=whole, output_tokens=output, cached_tokens=read, cache_write_tokens=written, reasoning_tokens=count(told, "reasoning_tokens"))
