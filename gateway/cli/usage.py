"""`gateway usage`: what was used and what was charged, by run, lane, campaign, model, label or day."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from gateway.cli.naming import RunName, find_run, split
from gateway.cli.problems import Problem
from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.reading import open_ledger, with_ledger
from gateway.cli.screen import Screen, with_screen
from gateway.cli.usage_views import csv_text, usage_views

BY: Final = ("run", "lane", "campaign", "model", "label", "day")
FORMATS: Final = ("table", "json", "csv")


@click.command()
@click.option("--by", type=click.Choice(BY), default="run", show_default=True, help="One row for each of these.")
@click.option("--campaign", default="", metavar="CAMPAIGN", help="Only this campaign's calls.")
@click.option("--run", default="", metavar="RUN", help="Only this run's calls.")
@click.option("--zone", default="", metavar="NAME", help="With --by day: the IANA time zone of the days; by default the one in the campaign's policy.")
@click.option("--across-labels", is_flag=True, help="Allow a sum over runs of several labels, which is refused otherwise.")
@click.option("--as-of", type=click.IntRange(min=1), default=None, metavar="NUMBER", help="The ledger as it stood with this entry.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="`json` is the same as --json.")
@with_ledger
@with_gateway
@with_screen
def usage(by: str, form: str, ledger: Path | None, reach: Reach, screen: Screen, **asked: Any) -> None:
    """What was used and what was charged: two kinds of column that are never added to each other.

    A sum is of what is known; beside it stands in how many calls the number is unknown, and from which source the known ones come.
    By day, a call belongs to the day in which it was admitted, as day budgets count it.
    """
    if asked["zone"] and by != "day":
        raise Problem(f"usage by {by} has no time zone", "only days have one", "say --by day, or leave --zone out")
    answer = _answer(by, ledger, reach, **asked)
    if form == "csv" and not screen.as_json:
        click.echo(csv_text(answer), nl=False)
        return
    Screen(as_json=screen.as_json or form == "json").present(answer, *usage_views(answer))


def _answer(by: str, ledger: Path | None, reach: Reach, *, campaign: str, run: str, zone: str, across_labels: bool, as_of: int | None) -> dict[str, Any]:
    named = split(run) if "/" in run else None
    if named and campaign not in ("", named.campaign):
        raise Problem(f"--run {run} is no run of campaign {campaign}", "the two name different campaigns", "leave --campaign out")
    if ledger is not None:
        where = named or RunName(campaign, run)
        with open_ledger(ledger) as reader:
            return reader.usage(by, campaign=where.campaign, run=where.run, across_labels=across_labels, as_of=as_of or 0, zone=zone)
    control = reach.control()
    if run and not named:
        named = RunName(campaign, run) if campaign else find_run(control, run)
    where = named or RunName(campaign, "")
    return control.usage(by, campaign=where.campaign, run=where.run, across_labels=across_labels, as_of=as_of or 0, zone=zone)
