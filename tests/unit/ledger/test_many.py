"""However many rows: each is written once, in order, in few steps."""

from __future__ import annotations

import sqlite3

import pytest

from gateway.ledger.many import ROWS_MAX, Many, marks


@pytest.mark.parametrize("number", [0, 1, 2, 3, 7, ROWS_MAX - 1, ROWS_MAX, ROWS_MAX + 1, 3 * ROWS_MAX + 5])
def test_each_row_is_written_once_and_in_order(number: int) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE written (place INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER, word TEXT)")
    steps: list[str] = []
    connection.set_trace_callback(steps.append)
    Many("INSERT INTO written (number, word) VALUES ", marks(2)).run(connection, [(at, f"word {at}") for at in range(number)])
    connection.set_trace_callback(None)
    inserted = [step for step in steps if step.startswith("INSERT")]
    assert connection.execute("SELECT number, word FROM written ORDER BY place").fetchall() == [(at, f"word {at}") for at in range(number)]
    assert len(inserted) == -(-number // ROWS_MAX)
