"""One call as a row: what the readable tables say of it, made from its entries one after the other.

The same step fills the table as entries are written, makes the table again as of an earlier entry, and is what `verify` holds the table against.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from gateway.accounting.tally import USAGE_COLUMNS, Content

OPENING_COLUMNS = (
    "call_id",
    "campaign",
    "run",
    "lane",
    "label",
    "key_id",
    "model",
    "upstream",
    "dialect",
    "stream",
    "admitted_ms",
    "waited_ms",
    "ceiling",
    "ceiling_from",
    "reserved_input_tokens",
    "reserved_output_tokens",
    "reserve_number",
)
CLOSING_COLUMNS = (
    "status",
    "ended_ms",
    "outcome",
    "source",
    *USAGE_COLUMNS,
    "charged_requests",
    "charged_input_tokens",
    "charged_output_tokens",
    "charged_tool_calls",
    "counted_by",
    "flags",
    "closing_number",
)
COLUMNS = OPENING_COLUMNS + CLOSING_COLUMNS
STATUS = {"settle": "settled", "void": "voided", "expire": "expired", "adjust": "adjusted"}
NOT_CLOSED: tuple[object, ...] = ("reserved", *[None] * (len(CLOSING_COLUMNS) - 1))

OUTCOME, COUNTED_BY, FLAGS = (CLOSING_COLUMNS.index(name) for name in ("outcome", "counted_by", "flags"))


def opening_row(content: Content, label: str) -> tuple[object, ...]:
    """Of a `reserve`, in the order of OPENING_COLUMNS."""
    reserved = cast("dict[str, int]", content["reserved"])
    return (
        content["call"],
        content["campaign"],
        content["run"],
        content["lane"],
        label,
        content["key"],
        content["model"],
        content["upstream"],
        content["dialect"],
        int(cast(bool, content["stream"])),
        content["at_ms"],
        content.get("waited_ms", 0),
        content["ceiling"],
        content["ceiling_from"],
        reserved["input_tokens"],
        reserved["output_tokens"],
        content["number"],
    )


def closing_row(content: Content) -> tuple[object, ...]:
    """Of an entry that closes, in the order of CLOSING_COLUMNS. None in outcome, counted_by and flags of an adjustment: what stood there stays."""
    kind = cast(str, content["kind"])
    usage = cast("dict[str, int]", content.get("usage", {}))
    charge = cast("dict[str, int]", content.get("charge", {}))
    flags = cast("Sequence[str]", content.get("flags", ()))
    return (
        STATUS[kind],
        content["at_ms"],
        str(content["outcome"]) if "outcome" in content else None,
        str(content["source"]) if "source" in content else None,
        *map(usage.get, USAGE_COLUMNS),
        charge.get("requests", 0),
        charge.get("input_tokens", 0),
        charge.get("output_tokens", 0),
        charge.get("tool_calls", 0),
        content.get("counted_by"),
        " ".join(flags) or None,
        content["number"],
    )


def closed(row: tuple[object, ...], closing: tuple[object, ...]) -> tuple[object, ...]:
    """A whole row after one more closing entry."""
    before = row[len(OPENING_COLUMNS) :]
    kept = tuple(before[place] if value is None and place in (OUTCOME, COUNTED_BY, FLAGS) else value for place, value in enumerate(closing))
    return row[: len(OPENING_COLUMNS)] + kept
