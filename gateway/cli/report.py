"""`gateway report` and `gateway compare`: a campaign for people, and campaigns side by side."""

from __future__ import annotations

from pathlib import Path

import click

from gateway.cli.compare_views import compare_views
from gateway.cli.problems import Problem
from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.reading import ledger_path, open_ledger, with_ledger
from gateway.cli.report_views import report_views
from gateway.cli.screen import Screen, with_screen

as_of_option = click.option("--as-of", type=click.IntRange(min=1), default=None, metavar="NUMBER", help="The ledger as it stood with this entry.")


@click.command()
@click.argument("campaign")
@click.option("--across-labels", is_flag=True, help="Allow one line over runs of several labels, which is left out otherwise.")
@as_of_option
@click.option("--markdown", is_flag=True, help="Markdown on stdout.")
@with_ledger
@with_gateway
@with_screen
def report(campaign: str, across_labels: bool, as_of: int | None, markdown: bool, ledger: Path | None, reach: Reach, screen: Screen) -> None:
    """What a campaign came to: calls and tokens by lane, model, label and run, outcomes, times, what did not happen."""
    from gateway.reports.campaign import campaign_report

    with open_ledger(ledger_path(ledger, reach)) as reader, reader.at_one_moment():
        reader.check_as_of(as_of or 0)
        document = campaign_report(reader, campaign, as_of=as_of or 0, across_labels=across_labels)
    Screen(as_json=screen.as_json, markdown=markdown).present(document, *report_views(document))


@click.command()
@click.argument("campaigns", nargs=-1, required=True, metavar="CAMPAIGN CAMPAIGN...")
@click.option(
    "--pair-by", default="task,repeat", show_default=True, metavar="KEYS", help="What makes two runs attempts at the same: of task, repeat, label, run."
)
@click.option("--outcome", "outcomes", multiple=True, metavar="NAME", help="A named outcome, or judge, turn_end, exit. [default: all that are declared]")
@as_of_option
@click.option("--markdown", is_flag=True, help="Markdown on stdout.")
@with_ledger
@with_gateway
@with_screen
def compare(
    campaigns: tuple[str, ...],
    pair_by: str,
    outcomes: tuple[str, ...],
    as_of: int | None,
    markdown: bool,
    ledger: Path | None,
    reach: Reach,
    screen: Screen,
) -> None:
    """Campaigns side by side, paired run by run; the first is what the others are held against."""
    from gateway.reports.comparison import PAIR_BY, AmbiguousPair
    from gateway.reports.comparison import compare as compared

    keys = [key.strip() for key in pair_by.split(",") if key.strip()]
    if unknown := [key for key in keys if key not in PAIR_BY] or not keys:
        raise Problem(
            f"--pair-by {pair_by!r} can't be used", f"there is no {unknown}" if keys else "it names nothing", f"name one or more of {', '.join(PAIR_BY)}"
        )
    if len(campaigns) < 2 or len(set(campaigns)) != len(campaigns):
        raise Problem("there is nothing to compare", f"named: {', '.join(campaigns)}", "name two campaigns or more, each once")
    with open_ledger(ledger_path(ledger, reach)) as reader, reader.at_one_moment():
        reader.check_as_of(as_of or 0)
        try:
            document = compared(reader, campaigns, pair_by=keys, outcomes=outcomes, as_of=as_of or 0)
        except AmbiguousPair as ambiguous:
            mend = "pair by more, for example --pair-by task,repeat,label, or by run; `gateway run open --repeat` tells attempts apart"
            raise Problem("two runs have the same key", str(ambiguous), mend, code="ambiguous") from ambiguous
    Screen(as_json=screen.as_json, markdown=markdown).present(document, *compare_views(document))
