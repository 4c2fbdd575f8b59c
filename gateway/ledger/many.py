"""Many rows in one step of SQLite.

At each step the interpreter is given away, and where the event loop is busy it comes back only a switch interval later: a batch that is written row by
row would wait fifty times. Each number of rows up to ROWS_MAX is a statement of its own, prepared when it is first needed: what 32 calls write is then
one step a table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Final

Row = tuple[object, ...]

ROWS_MAX: Final = 32
"""More would be few steps less, and prepared statements of some megabytes more."""


def marks(columns: int) -> str:
    return f"({', '.join('?' * columns)})"


class Many:
    """A statement over rows: `head`, the rows between commas, `tail`."""

    def __init__(self, head: str, row: str, tail: str = "") -> None:
        self._head = head
        self._row = row
        self._tail = tail
        self._statements: dict[int, str] = {}
        """By the number of rows, those that were needed."""

    def run(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
        """In order, inside the transaction that is open."""
        for at in range(0, len(rows), ROWS_MAX):
            part = rows[at : at + ROWS_MAX]
            statement = self._statements.get(len(part)) or self._statement(len(part))
            connection.execute(statement, tuple(chain.from_iterable(part)))

    def _statement(self, count: int) -> str:
        statement = self._statements[count] = self._head + ", ".join([self._row] * count) + self._tail
        return statement
