"""`gateway receipt`: what a run or a campaign came to, beside what its driver says of it.

Whoever keeps a receipt can hold the ledger to it: `gateway ledger verify --against`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gateway.cli.naming import RunName, only, split
from gateway.cli.problems import Problem
from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.reading import open_ledger, with_ledger
from gateway.cli.receipt_views import receipt_views
from gateway.cli.screen import Screen, with_screen


@click.command()
@click.argument("name", metavar="RUN|CAMPAIGN/RUN|CAMPAIGN")
@with_ledger
@with_gateway
@with_screen
def receipt(name: str, ledger: Path | None, reach: Reach, screen: Screen) -> None:
    """Print the receipt that stands, of a run or of a campaign. With --json: the document to keep and to verify against."""
    found, document = _from_file(ledger, name) if ledger else _from_gateway(reach, name)
    screen.present(document, *receipt_views(str(found).rstrip("/"), document))


def _from_gateway(reach: Reach, name: str) -> tuple[RunName, dict[str, Any]]:
    control = reach.control()
    found = _unmistakable(name)
    if found is None:
        campaigns = [str(row["campaign"]) for row in control.campaigns()]
        found = _meant(name, campaigns, [RunName(each, name) for each in campaigns for row in control.runs(each) if row["run"] == name])
    answer = control.run_receipt(found.campaign, found.run) if found.run else control.campaign_receipt(found.campaign)
    return found, answer["receipt"]


def _from_file(ledger: Path, name: str) -> tuple[RunName, dict[str, Any]]:
    with open_ledger(ledger) as reader:
        found = _unmistakable(name)
        if found is None:
            campaigns = [str(row["campaign"]) for row in reader.campaigns()]
            found = _meant(name, campaigns, [RunName(str(row["campaign"]), name) for row in reader.runs() if row["run"] == name])
        return found, reader.receipt(found.campaign, found.run)


def _unmistakable(name: str) -> RunName | None:
    """`CAMPAIGN/RUN`, or `CAMPAIGN/` for the campaign; None for a bare name."""
    return RunName(name[:-1], "") if name.endswith("/") else split(name)


def _meant(name: str, campaigns: list[str], runs: list[RunName]) -> RunName:
    """A bare name is a campaign's or a run's; where it is both, nobody guesses."""
    if name not in campaigns:
        return only(runs, name)
    if runs:
        raise Problem(
            f"{name!r} is a campaign and a run", f"there is a run {runs[0]}", f"write {runs[0]} for the run, {name}/ for the campaign", code="ambiguous"
        )
    return RunName(name, "")
