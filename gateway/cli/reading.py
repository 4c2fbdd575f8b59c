"""A ledger file opened by a command itself: read-only, beside a gateway that may be writing, or where none runs.

Which one is decided here alone, for every command: the file that is named (`--ledger`), else that of the gateway.toml that is named (`--config`), else the
one that the running gateway says it writes, else that of ./gateway.toml, else the usual one. Where it was not named, a line on stderr says which it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.configured import settings_path
from gateway.cli.problems import Problem, from_control_error
from gateway.cli.reaching import Reach
from gateway.cli.words import printable
from gateway.client.control import ControlClient, ControlError

if TYPE_CHECKING:
    from gateway.ledger.reading import LedgerReader

with_ledger = click.option(
    "--ledger", type=click.Path(path_type=Path), default=None, metavar="FILE", help="Read this ledger file by itself, read-only; no gateway has to run."
)


def ledger_path(ledger: Path | None, reach: Reach) -> Path:
    """Ends the command where there is none, or where the gateway that should know can't be asked."""
    if ledger is not None:
        return _there(ledger)
    if reach.config is not None:
        return _there(_usual(reach.config))
    control = reach.control()
    if (path := _written(reach, control)) is not None:
        why = f"the gateway at {control.address} writes it"
    else:
        path = _there(_usual(None))
        why = f"no gateway answered at {control.address}"
    click.echo(printable(f"ledger: {path} ({why})"), err=True)
    return path


def _usual(config: Path | None) -> Path:
    from gateway.settings import LedgerSettings, load_settings

    settings = settings_path(config)
    return load_settings(settings).ledger.path if settings else LedgerSettings().path


def _written(reach: Reach, control: ControlClient) -> Path | None:
    """What the running gateway says it writes; None where none runs. One that was named has to answer, else another's ledger could be taken for its own."""
    try:
        path = Path(str(control.status().get("ledger", "")))
    except ControlError as error:
        if not error.status and not reach.has_to_answer(error):
            return None
        problem = from_control_error(error)
        problem.mend += " Or name the file: --ledger FILE."
        raise problem from error
    if reach.is_elsewhere() or not (path.is_absolute() and _is_here(path)):
        raise Problem(
            "the ledger that the gateway writes is not here",
            f"the gateway at {control.address} writes {path} on its machine; on this one that is another file, or none that this user may see",
            "run this where the gateway runs; or make a copy there with `gateway ledger backup`, bring it here and name it with --ledger FILE",
            code="no_ledger",
        )
    return path


def open_ledger(path: Path) -> LedgerReader:
    """To be closed by `with`. Ends the command where there is no such file: nothing is made by looking."""
    from gateway.ledger.reading import LedgerReader

    return LedgerReader(_there(path))


def _there(path: Path) -> Path:
    if not _is_here(path):
        raise Problem(f"there is no ledger {path}", "no such file", "name it with --ledger FILE, or the gateway.toml with --config FILE", code="no_ledger")
    return path


def _is_here(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError:
        return False


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
