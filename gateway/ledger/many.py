"""Many rows in one step of SQLite.

At each step the interpreter is given away, and where the event loop is busy it comes back only a switch interval later: a batch that is written row by
row would wait fifty times. The number of rows in one statement is a power of two, so that few statements are prepared, each once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Final

Row = tuple[object, ...]

ROWS_MAX: Final = 64


def marks(columns: int) -> str:
    return f"({', '.join('?' * columns)})"


class Many:
    """A statement over rows: `head`, the rows between commas, `tail`."""

    def __init__(self, head: str, row: str, tail: str = "") -> None:
        self._head = head
        self._row = row
        self._tail = tail

    @cached_property
    def _statements(self) -> dict[int, str]:
        return {2**power: self._head + ", ".join([self._row] * 2**power) + self._tail for power in range(ROWS_MAX.bit_length())}

    def run(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
        """In order, inside the transaction that is open."""
        at = 0
        while left := len(rows) - at:
            count = min(ROWS_MAX, 1 << (left.bit_length() - 1))
            connection.execute(self._statements[count], tuple(chain.from_iterable(rows[at : at + count])))
            at += count
