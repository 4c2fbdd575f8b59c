"""`gateway export`: a campaign packed so that a stranger can check it without this software."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.problems import Problem
from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.reading import ledger_path, open_ledger, with_ledger
from gateway.cli.screen import Line, Screen, with_screen

if TYPE_CHECKING:
    from gateway.ledger.reading import LedgerReader


@click.command()
@click.argument("campaign")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="A folder that is not there yet, or is empty.")
@click.option("--as-of", type=click.IntRange(min=1), default=None, metavar="NUMBER", help="As the ledger stood with that entry.")
@click.option(
    "--records", multiple=True, type=click.Path(path_type=Path), metavar="PATH", help="The agents' own records: the pack then holds the calls against them."
)
@click.option("--agent", default="auto", show_default=True, metavar="AGENT", help="Read the records as this agent's; `auto` looks whose they are.")
@with_ledger
@with_gateway
@with_screen
def export(campaign: str, out: Path, as_of: int | None, records: tuple[Path, ...], agent: str, ledger: Path | None, reach: Reach, screen: Screen) -> None:
    """Pack a campaign: policy, calls, runs, sums, chains, receipts, and a check.py that needs Python 3.10 and nothing else.

    The same ledger gives the same bytes. There is no prompt, no answer and no secret in a pack.
    """
    from gateway.pack.folder import PackExists
    from gateway.pack.packing import write_pack

    with open_ledger(ledger_path(ledger, reach)) as reader, reader.at_one_moment():
        reader.check_as_of(as_of or 0)
        held = _reconciliation(reader, campaign, records, agent, as_of or 0) if records else None
        try:
            pack = write_pack(reader, campaign, out, as_of=as_of or 0, reconciliation=held, told=_told)
        except (PackExists, OSError) as error:
            raise Problem(f"no pack was written to {out}", str(error), "name a folder of its own that can be written", code="bad_out") from error
    head = pack.heads[0]
    document = {"out": str(out), "campaign": campaign, "as_of": pack.as_of, "runs": len(pack.runs), "calls": pack.calls, "heads": pack.heads}
    screen.present(
        document,
        Line(f"{out}: {pack.calls} calls of {len(pack.runs)} runs, as of entry {pack.as_of}."),
        Line(f"head of {head['chain']}: number {head['sequence']}, {head['hash']}"),
        Line(f"check it: python3 {out / 'check.py'}"),
    )


def _reconciliation(reader: LedgerReader, campaign: str, records: tuple[Path, ...], agent: str, as_of: int) -> dict[str, object]:
    """Records are named from the folder on that holds them all: where it lay is nobody's business."""
    from gateway.reconcile.finding import find_records
    from gateway.reconcile.reconciling import document, reconcile

    found = find_records(records, agent=agent)
    return document(reconcile(reader, found, campaign, as_of=as_of), within=os.path.commonpath([str(file.path.parent) for file in found.files]))


def _told(run: str, calls: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"packed run {run}: {calls} calls", err=True)
