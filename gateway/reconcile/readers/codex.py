"""Codex's rollout files: `~/.codex/sessions/Y/M/D/rollout-*.jsonl`.

The output items of an answer stand before its usage. Older versions write only cumulative snapshots, repeated at will: a row is where the total moved.
An answer without usage has no usage line: its items alone make the row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from gateway.accounting.usage import Usage
from gateway.reconcile.json_lines import Row, json_lines, look
from gateway.reconcile.record import DispatchRecord, RecordKind, Skipped
from gateway.reconcile.values import at, believed, count, ident, idents, known_version, moment_ms, some, status, text

KNOWN_VERSIONS = ("0.",)
_OWN_ITEMS = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output", "ghost_snapshot", "compacted"})
_REQUEST_ID = re.compile(r"request id: ([\w-]{1,128})")


class CodexReader:
    name = "codex"
    about = "Codex, rollout files of versions 0.*"
    caveat = ""

    def claims(self, path: Path) -> bool:
        return any(row.get("type") == "session_meta" and isinstance(row.get("payload"), dict) for row in look(path))

    def read(self, path: Path) -> Iterator[DispatchRecord | Skipped]:
        thread = _Thread(path)
        for line in json_lines(path, _matters):
            if isinstance(line, Skipped):
                yield line
            else:
                yield from thread.take(f"{path}:{line[0]}", line[1])


def _matters(row: Row) -> bool:
    return row.get("type") in ("session_meta", "turn_context", "response_item", "token_usage_record", "event_msg")


@dataclass(slots=True)
class _Thread:
    """One file as it is read: what waits for the usage line that it belongs to."""

    path: Path
    session: str = ""
    model: str = ""
    order: int = 0
    items: list[str] = field(default_factory=list)
    tool_calls: list[str] = field(default_factory=list)
    items_at: tuple[str, int | None] = ("", None)
    sum: object = None
    told: bool = False
    """A usage line stood since the last snapshot, which therefore says nothing new."""

    def take(self, source: str, row: Row) -> Iterator[DispatchRecord | Skipped]:
        payload = at(row, "payload")
        now = moment_ms(row, "timestamp")
        match row.get("type"):
            case "session_meta":
                known_version("Codex", text(payload, "cli_version"), source, KNOWN_VERSIONS)
                self.session = self.session or ident(payload, "id") or ident(payload, "session_id")  # a fork copies its parent's after its own
            case "turn_context":
                self.model = text(payload, "model")
            case "response_item":
                yield from self._item(source, payload, now)
            case "token_usage_record":
                self.told = True
                yield from self._answer(source, at(payload, "usage"), now, response=ident(payload, "response_id"), thread=ident(payload, "thread_id"))
            case "event_msg":
                yield from self._event(source, payload, now)

    def _item(self, source: str, payload: object, now: int | None) -> Iterator[DispatchRecord | Skipped]:
        kind = text(payload, "type")
        if kind in _OWN_ITEMS or (kind == "message" and at(payload, "role") != "assistant"):
            yield from self._unmeasured(RecordKind.ANSWER)
            return
        self.items_at = (source, now)
        self.items.append(ident(payload, "id"))
        self.tool_calls.append(ident(payload, "call_id"))

    def _event(self, source: str, payload: object, now: int | None) -> Iterator[DispatchRecord | Skipped]:
        kind, error = at(payload, "type"), at(payload, "error")
        if kind == "token_count":
            spent = at(payload, "info", "total_token_usage")
            moved, self.sum = spent is not None and spent != self.sum, spent or self.sum
            if moved and not self.told:
                yield from self._answer(source, at(payload, "info", "last_token_usage"), now)
            self.told = False
        elif kind == "turn_aborted":
            if not self.items:
                yield self._row(source, RecordKind.ABORTED, now, message=text(payload, "reason"))
            yield from self._unmeasured(RecordKind.ABORTED)
        elif kind in ("task_complete", "turn_complete"):
            yield from self._unmeasured(RecordKind.ANSWER)
            if isinstance(error, dict):
                yield self._error(source, error, now)

    def _error(self, source: str, error: object, now: int | None) -> DispatchRecord:
        words = text(error, "message", most=2000)
        request = _REQUEST_ID.search(words)
        info = at(error, "codex_error_info")
        code = status(error, "http_status_code")
        if isinstance(info, dict):
            code = next((found for each in info.values() if (found := status(each, "http_status_code"))), code)
        row = self._row(source, RecordKind.ERROR, now, message=words[:256])
        return replace(row, status=code, request_ids=(request.group(1),) if request else ())

    def _answer(self, source: str, usage: object, now: int | None, *, response: str = "", thread: str = "") -> Iterator[DispatchRecord | Skipped]:
        found, problems = believed(source, lambda: _usage(usage))
        yield from problems
        row = self._with_items(self._row(source, RecordKind.ANSWER, now))
        yield replace(row, usage=found, response_id=response, copy_key=f"{thread} {response}" if response else "")

    def _unmeasured(self, kind: RecordKind) -> Iterator[DispatchRecord]:
        if self.items:
            source, then = self.items_at
            yield self._with_items(self._row(source, kind, then))

    def _with_items(self, row: DispatchRecord) -> DispatchRecord:
        row = replace(row, item_ids=idents(self.items), tool_call_ids=idents(self.tool_calls))
        self.items, self.tool_calls = [], []
        return row

    def _row(self, source: str, kind: RecordKind, now: int | None, message: str = "") -> DispatchRecord:
        self.order += 1
        return DispatchRecord(
            agent=CodexReader.name,
            source=source,
            kind=kind,
            session=self.session,
            session_ids=idents((self.session,)),
            order=self.order - 1,
            at_ms=now,
            model=self.model if kind is not RecordKind.ERROR else "",
            message=message,
        )


def _usage(usage: object) -> Usage:
    return Usage(
        input_tokens=count(usage, "input_tokens"),
        output_tokens=count(usage, "output_tokens"),
        cached_tokens=some(usage, "cached_input_tokens"),
        cache_write_tokens=some(usage, "cache_write_input_tokens"),
        reasoning_tokens=some(usage, "reasoning_output_tokens"),
    )
