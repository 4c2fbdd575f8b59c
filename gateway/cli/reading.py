"""A ledger file opened by a command itself: read-only, beside a gateway that may be writing, or where none runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.configured import settings_path
from gateway.cli.problems import Problem

if TYPE_CHECKING:
    from gateway.ledger.reading import LedgerReader

with_ledger = click.option(
    "--ledger", type=click.Path(path_type=Path), default=None, metavar="FILE", help="Read this ledger file by itself, read-only; no gateway has to run."
)


def ledger_path(ledger: Path | None, config: Path | None) -> Path:
    """The file that is named, else the one of the gateway.toml, else the usual one."""
    from gateway.settings import LedgerSettings, load_settings

    if ledger is not None:
        return ledger
    settings = settings_path(config)
    return load_settings(settings).ledger.path if settings else LedgerSettings().path


def open_ledger(path: Path) -> LedgerReader:
    """To be closed by `with`. Ends the command where there is no such file: nothing is made by looking."""
    from gateway.ledger.reading import LedgerReader

    if not path.is_file():
        raise Problem(f"there is no ledger {path}", "no such file", "name it with --ledger FILE, or the gateway.toml with --config FILE", code="no_ledger")
    return LedgerReader(path)


def read_documents(path: Path) -> list[object]:
    """Every JSON document of a file, one after the other: a receipt, a list of them, or one a line. Ends the command where one can't be read."""
    try:
        return list(_documents(path.read_text()))
    except (OSError, ValueError) as error:
        raise Problem(f"{path} can't be read as receipts", str(error), "give what `gateway receipt --json` printed", code="bad_receipts") from error


def _documents(text: str) -> Iterator[object]:
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        found, end = decoder.raw_decode(text)
        yield found
        text = text[end:]
