"""Limits for people: what holds, what is used, what is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.cli.screen import Column, Row, Table
from gateway.cli.words import Kind

COLUMNS: Final = (
    Column("name", "LIMIT"),
    Column("ceiling", "CEILING", Kind.NUMBER),
    Column("settled", "SETTLED", Kind.NUMBER),
    Column("reserved", "RESERVED", Kind.NUMBER),
    Column("left", "LEFT", Kind.NUMBER),
    Column("resets_at_ms", "RESETS AT", Kind.TIME),
    Column("origin", "SET AT"),
)


def limits_table(limits: Sequence[Row]) -> Table:
    return Table(columns=COLUMNS, rows=limits, empty="No limits.")
