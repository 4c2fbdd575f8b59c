"""aider's analytics log (`--analytics-log FILE`), the only file of its own with a moment and numbers.

The numbers are its own estimates, whatever the server said, and only its edit calls are in it, not those that write commit messages: it can't be
reconciled by usage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gateway.accounting.usage import Usage
from gateway.reconcile.json_lines import Row, head, json_lines, look
from gateway.reconcile.record import DispatchRecord, RecordKind, Skipped
from gateway.reconcile.values import believed, count, ident, moment_ms, text

_CHAT_HISTORY = b"# aider chat started at "
_LLM_HISTORY = b"TO LLM "
_HIDDEN_MODEL = "REDACTED"
_SENT = "message_send"
_FAILED = "message_send_exception"


class AiderReader:
    name = "aider"
    about = "aider, analytics log (--analytics-log)"
    caveat = (
        "aider writes its own estimates and only its edit calls: its rows have no id and can't be reconciled by usage. "
        "Put the gateway's own record beside it by giving each run its own key."
    )

    def claims(self, path: Path) -> bool:
        return _is_history(path) or any(isinstance(row.get("event"), str) and "properties" in row and "user_id" in row and "time" in row for row in look(path))

    def read(self, path: Path) -> Iterator[DispatchRecord | Skipped]:
        if _is_history(path):
            yield Skipped(source=str(path), why="aider's history has no numbers that can be held against a call: give its --analytics-log file")
            return
        order = 0
        for line in json_lines(path, lambda row: row.get("event") in (_SENT, _FAILED)):
            if isinstance(line, Skipped):
                yield line
                continue
            source, row = f"{path}:{line[0]}", line[1]
            record, problems = _record(source, row)
            yield from problems
            yield replace(record, order=order)
            order += 1


def _is_history(path: Path) -> bool:
    start = head(path)[:256].lstrip()
    return start.startswith(_CHAT_HISTORY) or (start.startswith(_LLM_HISTORY) and b"\n-------\n" in start)


def _record(source: str, row: Row) -> tuple[DispatchRecord, list[Skipped]]:
    told = row.get("properties")
    model = text(told, "main_model")
    usage, problems = believed(source, lambda: Usage(input_tokens=count(told, "prompt_tokens"), output_tokens=count(told, "completion_tokens")))
    return DispatchRecord(
        agent=AiderReader.name,
        source=source,
        kind=RecordKind.ANSWER if row.get("event") == _SENT else RecordKind.LOCAL_ERROR,
        session=ident(row, "user_id"),
        at_ms=moment_ms(row, "time", unit_ms=1000),
        model="" if _HIDDEN_MODEL in model else model,
        usage=usage,
        usage_is_own=True,
        message=text(told, "exception"),
    ), problems
