"""`gateway campaign`: a set of runs under one frozen policy version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli.limit_views import limits_table
from gateway.cli.plan_file import read_plan
from gateway.cli.problems import Problem
from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.receipt_views import receipt_views
from gateway.cli.screen import Column, Facts, Line, Screen, Table, with_screen
from gateway.cli.words import Kind

COLUMNS: Final = (
    Column("campaign", "CAMPAIGN"),
    Column("state", "STATE"),
    Column("policy", "POLICY"),
    Column("planned", "PLANNED", Kind.OPTIONAL_NUMBER),
    Column("opened_runs", "RUNS", Kind.NUMBER),
    Column("open_runs", "OPEN", Kind.NUMBER),
    Column("in_flight", "IN FLIGHT", Kind.NUMBER),
    Column("opened_at_ms", "OPENED", Kind.TIME),
)
FACTS: Final = (
    Column("state", "state"),
    Column("reason", "reason"),
    Column("policy", "policy"),
    Column("policy_hash", "policy hash"),
    Column("limits_hash", "limits hash"),
    Column("planned", "planned runs", Kind.OPTIONAL_NUMBER),
    Column("opened_runs", "runs", Kind.NUMBER),
    Column("open_runs", "open runs", Kind.NUMBER),
    Column("missing", "missing so far"),
    Column("in_flight", "calls in flight", Kind.NUMBER),
    Column("opened_at_ms", "opened", Kind.TIME),
    Column("span_ends_at_ms", "span ends", Kind.TIME),
)
CLOSE_MAX_S: Final = 86_400


@click.group()
def campaign() -> None:
    """Open, halt, resume, close, list and show campaigns."""


@campaign.command("open")
@click.argument("campaign")
@click.option("--policy", required=True, metavar="NAME", help="The policy, by its file's name in the policies folder. It is frozen into the campaign.")
@click.option("--planned", type=click.IntRange(min=1), metavar="N", help="How many runs are planned: those that do not happen are reported as missing.")
@click.option("--plan", type=click.Path(path_type=Path), metavar="FILE", help="A CSV file of the runs that should happen: run, and any of task, label, repeat.")
@with_gateway
@with_screen
def open_(campaign: str, policy: str, planned: int | None, plan: Path | None, reach: Reach, screen: Screen) -> None:
    """Open CAMPAIGN under a policy, frozen as it is now."""
    if planned is not None and plan is not None:
        raise Problem("--planned and --plan are both given", "the plan says how many runs are planned", "leave --planned out")
    opened = reach.control().open_campaign(campaign, policy, planned=planned, plan=read_plan(plan) if plan else ())
    noted = [Line(f"note: {opened['note']}")] if opened.get("note") else []
    title = f"Campaign {campaign} is open." if opened.get("created", True) else f"Campaign {campaign} was open already, under the same policy."
    screen.present(
        opened,
        Facts(title=title, row=_row(opened), columns=FACTS[2:6]),
        *noted,
        Line(),
        Line("Next, open a run and get its keys:"),
        Line(f"  gateway run open {campaign} --task TASK"),
    )


@campaign.command()
@click.argument("campaign")
@click.option("--reason", default="", metavar="TEXT", help="Stands in the ledger.")
@with_gateway
@with_screen
def halt(campaign: str, reason: str, reach: Reach, screen: Screen) -> None:
    """Admit no new calls of CAMPAIGN; what runs goes on, what waits may be refused for now."""
    answer = reach.control().halt(campaign, reason)
    screen.present(
        answer,
        Line(f"Campaign {campaign} is halted: no new call is admitted, nothing that runs is cut."),
        Line(f"`gateway campaign resume {campaign}` undoes it."),
    )


@campaign.command()
@click.argument("campaign")
@click.option("--reason", default="", metavar="TEXT", help="Stands in the ledger.")
@with_gateway
@with_screen
def resume(campaign: str, reason: str, reach: Reach, screen: Screen) -> None:
    """Admit calls of a halted CAMPAIGN again."""
    answer = reach.control().resume(campaign, reason)
    screen.present(answer, Line(f"Campaign {campaign} admits calls again."))


@campaign.command()
@click.argument("campaign")
@click.option(
    "--close-seconds",
    type=click.IntRange(min=0, max=CLOSE_MAX_S),
    metavar="SECONDS",
    help="Write the campaign's receipt at the latest after so long; what is unsettled then is listed in it. [default: the gateway's own]",
)
@click.option(
    "--drain", "drain_seconds", type=click.IntRange(min=0, max=CLOSE_MAX_S), metavar="SECONDS", help="Let running calls go on for so long. [default: cut them]"
)
@with_gateway
@with_screen
def close(campaign: str, close_seconds: int | None, drain_seconds: int | None, reach: Reach, screen: Screen) -> None:
    """Refuse openings, close every open run of CAMPAIGN, print the campaign's receipt. Results that were not declared stay unknown."""
    answer = reach.control().close_campaign(campaign, close_seconds=close_seconds, drain_seconds=drain_seconds or 0)
    screen.present(answer, *receipt_views(campaign, answer["receipt"]))


@campaign.command("list")
@with_gateway
@with_screen
def list_(reach: Reach, screen: Screen) -> None:
    """All campaigns of the ledger."""
    campaigns = reach.control().campaigns()
    table = Table(columns=COLUMNS, rows=[_row(one) for one in campaigns], empty="No campaigns. `gateway campaign open NAME --policy POLICY` opens one.")
    screen.present({"campaigns": campaigns}, table)


@campaign.command()
@click.argument("campaign")
@with_gateway
@with_screen
def show(campaign: str, reach: Reach, screen: Screen) -> None:
    """State and policy of CAMPAIGN, its limits, and what is left of each."""
    answer = reach.control().campaign(campaign)
    screen.present(answer, Facts(title=f"Campaign {campaign}", row=_row(answer), columns=FACTS), Line(), limits_table(answer["limits"]))


def _row(campaign: Mapping[str, Any]) -> dict[str, object]:
    runs = campaign["runs"]
    state = f"{campaign['state']}, over" if campaign.get("over") else campaign["state"]
    opened = sum(runs.values())
    return {**campaign, "state": state, "opened_runs": opened, "open_runs": runs["open"], "missing": _missing(campaign, opened)}


def _missing(campaign: Mapping[str, Any], opened: int) -> object:
    """By name, or how many where only their number is planned; nothing where no run is."""
    if "planned" not in campaign:
        return None
    return campaign.get("missing", []) or max(0, campaign["planned"] - opened if "missing" not in campaign else 0) or "none"
