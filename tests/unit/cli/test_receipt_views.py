"""A receipt, for people."""

from __future__ import annotations

from typing import Any

from gateway.cli.receipt_views import totals_views
from gateway.cli.screen import Line

TOTALS: dict[str, Any] = {
    "calls": 2,
    "usage": {"input_tokens": {"sum": 45, "unknown": 0}, "output_tokens": {"sum": 30, "unknown": 0}},
    "charge": {"requests": 2, "input_tokens": 45, "output_tokens": 30},
    "sources": {"reported": {"calls": 2, "input_tokens": 45, "output_tokens": 30}},
}


def lines(totals: dict[str, Any]) -> list[str]:
    return [view.text for view in totals_views(totals) if isinstance(view, Line) and view.text]


def test_what_was_charged_above_what_was_reserved_is_a_line_of_its_own_where_there_is_any() -> None:
    assert lines(TOTALS) == []
    above = {**TOTALS, "overshoot": {"calls": 2, "input_tokens": 15}}
    assert lines(above) == ["overshoot: charged above what was reserved in 2 calls: input_tokens 15"]
