"""Where results go: rich tables on a terminal, plain aligned text in a pipe, one JSON document with `--json`.

Plain text has no colour, no box characters and is never truncated; numbers in it are bare digits.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from rich.cells import cell_len

from gateway.cli.words import NUMERIC, Kind, printable, written

R = TypeVar("R")
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#!~])")
Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Column:
    key: str
    heading: str
    """A line break in it is one on a terminal only."""
    kind: Kind = Kind.TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    empty: str = "none"
    """What stands there when there are no rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One thing's properties, one a line."""

    title: str
    row: Row
    columns: Sequence[Column]


@dataclass(frozen=True, slots=True)
class Line:
    """A line as it stands, ready to be copied: never wrapped, never coloured."""

    text: str = ""


View = Table | Facts | Line


class Screen:
    def __init__(self, *, as_json: bool, markdown: bool = False) -> None:
        self.as_json = as_json
        self.markdown = markdown
        self.terminal = sys.stdout.isatty() and not markdown

    def present(self, document: object, *views: View) -> None:
        """`document` is the whole answer for scripts; the views are the same for people."""
        if self.as_json:
            click.echo(json.dumps(document, indent=2, ensure_ascii=False))
            return
        for view in views:
            self._show(view)

    def _show(self, view: View) -> None:
        match view:
            case Line():
                click.echo(view.text)
            case Facts():
                self._facts(view)
            case Table() if not view.rows:
                click.echo(view.empty)
            case Table() if self.markdown:
                _markdown(view)
            case Table() if self.terminal:
                _rich(view)
            case Table():
                _plain(view)

    def _facts(self, facts: Facts) -> None:
        width = max((len(column.heading) for column in facts.columns), default=0)
        if facts.title:
            click.echo(click.style(printable(facts.title), bold=True) if self.terminal else printable(facts.title))
        for column in facts.columns:
            value = written(facts.row.get(column.key), column.kind, separators=self.terminal)
            click.echo(f"  {column.heading.lower():<{width}}  {value}")


def _cells(table: Table, *, separators: bool) -> list[list[str]]:
    return [[written(row.get(column.key), column.kind, separators=separators) for column in table.columns] for row in table.rows]


def _rich(table: Table) -> None:
    from rich import box  # here, not above: 5 MB that `gateway serve` never uses
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=Text(table.title) if table.title else None, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    for column in table.columns:
        drawn.add_column(Text(column.heading), justify="right" if column.kind in NUMERIC else "left", overflow="fold")
    for cells in _cells(table, separators=True):
        drawn.add_row(*(Text(cell) for cell in cells))
    Console().print(drawn)


def _markdown(table: Table) -> None:
    """A text in a cell stays what it is: nothing in it draws a line or a letter of its own."""
    if table.title:
        click.echo(f"## {table.title}\n")
    click.echo("| " + " | ".join(column.heading.replace("\n", " ").capitalize() for column in table.columns) + " |")
    click.echo("|" + "|".join("--:" if column.kind in NUMERIC else "---" for column in table.columns) + "|")
    for cells in _cells(table, separators=True):
        click.echo("| " + " | ".join(_SPECIAL.sub(r"\\\1", cell) for cell in cells) + " |")
    click.echo()


def _plain(table: Table) -> None:
    lines = [[column.heading.replace("\n", " ") for column in table.columns], *_cells(table, separators=False)]
    widths = [max(cell_len(line[index]) for line in lines) for index in range(len(table.columns))]
    if table.title:
        click.echo(table.title)
    for line in lines:
        click.echo("  ".join(_padded(cell, width, column) for cell, width, column in zip(line, widths, table.columns, strict=True)).rstrip())


def _padded(cell: str, width: int, column: Column) -> str:
    """By the cells that it takes on a screen: a Chinese letter takes two."""
    blanks = " " * (width - cell_len(cell))
    return blanks + cell if column.kind in NUMERIC else cell + blanks


def with_screen(command: Callable[..., R]) -> Callable[..., R]:
    """Gives a command `--json` and the `screen` to write on. Every command has it."""

    @click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout instead of text.")
    @functools.wraps(command)
    def wrapped(*args: Any, as_json: bool, **kwargs: Any) -> R:
        return command(*args, screen=Screen(as_json=as_json), **kwargs)

    return wrapped
