"""`gateway ledger`: whether the book holds together, and its clock."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

import click

from gateway.cli.exits import Exit
from gateway.cli.problems import Problem
from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.reading import ledger_path, open_ledger, read_documents, with_ledger
from gateway.cli.screen import Column, Facts, Line, Screen, View, with_screen
from gateway.cli.words import Kind
from gateway.ledger.anchors import anchors_in

CLOCK: Final = (
    Column("certain", "state"),
    Column("doubt", "why"),
    Column("now_ms", "ledger's clock", Kind.TIME),
    Column("system_ms", "system's clock", Kind.TIME),
    Column("drift_ms", "system ahead by ms", Kind.NUMBER),
)


@click.group()
def ledger() -> None:
    """Verify the ledger, back it up, and accept its clock."""


@ledger.command()
@click.argument("file", type=click.Path(path_type=Path))
@with_ledger
@with_gateway
@with_screen
def backup(file: Path, ledger: Path | None, reach: Reach, screen: Screen) -> None:
    """Copy the ledger into FILE, also while a gateway writes it. The copy is marked: it serves only after `gateway serve --accept-restore`."""
    from gateway.ledger.backup import back_up

    path = ledger_path(ledger, reach)
    open_ledger(path).close()
    try:
        number = back_up(path, file)
    except OSError as error:
        raise Problem(f"no backup was written to {file}", str(error), "name a new file in a folder that can be written", code="bad_out") from error
    screen.present({"ledger": str(path), "backup": str(file), "entries": number}, Line(f"{file}: a copy of {path} as of entry {number}, marked as a backup."))


@ledger.command()
@click.option(
    "--against", "kept", multiple=True, type=click.Path(path_type=Path), metavar="RECEIPTS", help="A file of receipts that were kept; may be repeated."
)
@with_ledger
@with_gateway
@with_screen
@click.pass_context
def verify(context: click.Context, kept: tuple[Path, ...], ledger: Path | None, reach: Reach, screen: Screen) -> None:
    """Add the whole ledger again and name the first entry that does not fit. Exits 1 where one does not.

    What the file can't show by itself (a tail cut off, a chain written anew) shows against receipts that were kept elsewhere.
    """
    path = ledger_path(ledger, reach)
    receipts = [_receipts(file) for file in kept]
    with open_ledger(path) as reader:
        found = reader.verify(receipts)
    document = {"ledger": str(path), "fits": found.fits, **dataclasses.asdict(found)}
    if found.fits:
        held = f", and {found.against:,} receipts and heads that were kept" if kept else "; held against no receipt"
        screen.present(document, Line(f"{path} holds together: {found.entries:,} entries{held}."), *_younger(found.after_backup))
        return
    where = f"entry {found.number}" + (f" of chain {found.chain}" if found.chain else "") if found.number is not None else "no single entry"
    screen.present(document, Line(f"{path} does not hold together."), Line(f"first misfit: {where}"), Line(f"what: {found.problem}"))
    context.exit(Exit.NOT_SO)


def _younger(after_backup: int) -> list[View]:
    if not after_backup:
        return []
    return [Line(f"after_backup: {after_backup} of these are younger than the backup that this ledger goes on from; what they vouch for is not in it.")]


def _receipts(file: Path) -> list[object]:
    """A file without a receipt would let anything pass: it ends the command."""
    documents = read_documents(file)
    if not any(anchors_in(documents)):
        raise Problem(
            f"{file} holds no receipt",
            "no object in it names a chain, a sequence and a hash",
            "give what `gateway receipt --json` printed",
            code="bad_receipts",
        )
    return documents


@ledger.command()
@click.option("--reason", default="", metavar="TEXT", help="Stands in the ledger (with --accept).")
@click.option("--accept", is_flag=True, help="The system's clock is right: go on by it. Only a person can say so.")
@with_gateway
@with_screen
@click.pass_context
def clock(context: click.Context, accept: bool, reason: str, reach: Reach, screen: Screen) -> None:
    """Show the ledger's clock beside the system's. Exits 1 while it is uncertain: then nothing is admitted until --accept."""
    control = reach.control()
    answer = control.accept_clock(reason) if accept else control.clock()
    row = {**answer, "certain": "certain" if answer["certain"] else "uncertain: nothing is admitted", "system_ms": answer["now_ms"] + answer["drift_ms"]}
    views: list[View] = [Facts(title="Clock", row=row, columns=CLOCK)]
    if not answer["certain"]:
        views.append(Line("If the system's clock is right: gateway ledger clock --accept"))
    screen.present(answer, *views)
    if not answer["certain"]:
        context.exit(Exit.NOT_SO)
