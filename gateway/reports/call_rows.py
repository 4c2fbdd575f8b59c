"""One row a call: what was asked, what was sent, what came of it, and what stood there before a correction. Unknown = the key is absent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from gateway.accounting.call_row import STATUS
from gateway.accounting.tally import Content

Row = dict[str, object]

OPENED = ("lane", "key", "model", "upstream", "dialect", "stream", "ceiling", "ceiling_from", "clamped", "waited_ms", "prompt_source", "reserved")
CLOSED = ("outcome", "source", "counted_by", "flags", "usage", "charge")
REPLACED = ("source", "usage", "charge", "reason", "evidence")


def call_rows(history: Iterable[Content], label: str) -> dict[str, Row]:
    """Of one run's chain, by call id, in the order of admission."""
    rows: dict[str, Row] = {}
    for content in history:
        if content["kind"] == "reserve":
            rows[cast(str, content["call"])] = _opened(content, label)
        elif content["kind"] in STATUS:
            _close(rows[cast(str, content["call"])], content)
    return rows


def _opened(content: Content, label: str) -> Row:
    row: Row = {name: content[name] for name in ("call", "campaign", "run", *OPENED) if name in content}
    row |= {"label": label, "admitted_ms": content["at_ms"], "number": content["number"], "status": "reserved"}
    if "details" in content:
        row["asked"] = content["details"]
    return row


def _close(row: Row, content: Content) -> None:
    if "closing_number" in row:
        was = {name: row.pop(name) for name in REPLACED if name in row}
        cast("list[Row]", row.setdefault("was", [])).append({**was, "number": row["closing_number"]})
    row |= {name: content[name] for name in (*CLOSED, "reason", "evidence") if name in content}
    row |= {"status": STATUS[cast(str, content["kind"])], "closing_number": content["number"]}
    if content["kind"] != "adjust":  # a correction says nothing of the end
        row["ended_ms"] = content["at_ms"]
    if "details" in content:
        row["seen"] = content["details"]
