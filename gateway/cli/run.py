"""`gateway run`: one attempt at one task by one agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from gateway.cli.exits import Exit
from gateway.cli.key import COLUMNS as KEY_COLUMNS
from gateway.cli.key import key_rows
from gateway.cli.limit_views import limits_table
from gateway.cli.naming import RunName, find_run, split
from gateway.cli.pasting import data_address, exports
from gateway.cli.plan_file import read_pins
from gateway.cli.problems import Problem
from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.receipt_views import receipt_views
from gateway.cli.screen import Column, Facts, Line, Screen, Table, View, with_screen
from gateway.cli.words import Kind, printable
from gateway.client.driver import base_url

TURN_ENDS: Final = ("completed", "aborted", "failed", "token_limit", "time_limit", "budget", "blocked")
JUDGEMENTS: Final = ("pass", "fail", "error")
DRAIN_MAX_S: Final = 86_400

COLUMNS: Final = (
    Column("campaign", "CAMPAIGN"),
    Column("run", "RUN"),
    Column("state", "STATE"),
    Column("task", "TASK"),
    Column("label", "LABEL"),
    Column("in_flight", "IN FLIGHT", Kind.NUMBER),
    Column("results", "DECLARED"),
    Column("opened_at_ms", "OPENED", Kind.TIME),
)
FACTS: Final = (*COLUMNS[2:], Column("repeat", "REPEAT", Kind.OPTIONAL_NUMBER), Column("pins", "PINS"))
TIMES: Final = (
    Column("name", "DEADLINE"),
    Column("ceiling", "SECONDS", Kind.NUMBER),
    Column("started_at_ms", "FROM", Kind.TIME),
    Column("ends_at_ms", "UNTIL", Kind.TIME),
    Column("origin", "SET AT"),
)


@click.group()
def run() -> None:
    """Open, close, list and show runs. RUN is CAMPAIGN/RUN, or just RUN where only one campaign has it."""


@run.command("open")
@click.argument("where", metavar="CAMPAIGN[/RUN]")
@click.option("--task", default="", metavar="NAME", help="The task that this run is an attempt at.")
@click.option("--label", default="", metavar="NAME", help="Fixed from now on; reports keep labels apart.")
@click.option("--lane", "lanes", multiple=True, metavar="LANE", help="A lane to give a key for; may be repeated. [default: every lane of the policy]")
@click.option(
    "--idempotency-key", default="", metavar="KEY", help="Opening again with the same key and arguments gives the same run: for a driver that lost the reply."
)
@click.option("--repeat", type=click.IntRange(min=1), metavar="N", help="Which attempt at its task; `gateway compare` pairs by it.")
@click.option("--pin", "pins", multiple=True, metavar="FILE|NAME=sha256:DIGEST", help="What makes this run what it is, by its SHA-256; may be repeated.")
@with_gateway
@with_screen
def open_(
    where: str, task: str, label: str, lanes: tuple[str, ...], idempotency_key: str, repeat: int | None, pins: tuple[str, ...], reach: Reach, screen: Screen
) -> None:
    """Open a run and print, for each lane, what an agent needs. A key is shown this once."""
    named = split(where) or RunName(where, "")
    control = reach.control()
    address = data_address(control)
    opened = control.open_run(
        named.campaign, named.run, task=task, label=label, lanes=lanes, idempotency_key=idempotency_key, repeat=repeat or 0, pins=read_pins(pins)
    )
    screen.present({**opened, "base_url": base_url(address)}, *_opened(opened, address))


@run.command()
@click.argument("run")
@click.option("--exit", "exit_status", type=int, metavar="N", help="The agent process's exit status.")
@click.option("--turn-end", type=click.Choice(TURN_ENDS), help="How the agent says its last turn ended.")
@click.option("--judge", type=click.Choice(JUDGEMENTS), help="What the judge says about the work.")
@click.option("--outcome", "outcomes", multiple=True, metavar="NAME=VALUE", help="Any other result, by name; may be repeated.")
@click.option(
    "--drain", "drain_seconds", type=click.IntRange(min=0, max=DRAIN_MAX_S), metavar="SECONDS", help="Let running calls go on for so long. [default: cut them]"
)
@click.option("--reason", default="", metavar="TEXT", help="Needed where other results stand already: then these correct them.")
@with_gateway
@with_screen
@click.pass_context
def close(
    context: click.Context,
    run: str,
    exit_status: int | None,
    turn_end: str | None,
    judge: str | None,
    outcomes: tuple[str, ...],
    drain_seconds: int | None,
    reason: str,
    reach: Reach,
    screen: Screen,
) -> None:
    """Close RUN with its results and print the receipt. Exits 3 where a result contradicts what the gateway saw.

    What is not declared stays unknown. A closed run may be closed again, with results that came later.
    """
    results = _results(exit_status, turn_end, judge, outcomes)
    control = reach.control()
    name = find_run(control, run)
    answer = control.close_run(name.campaign, name.run, results=results, drain_seconds=drain_seconds or 0, reason=reason)
    screen.present(answer, *receipt_views(str(name), answer["receipt"]))
    if answer["conflicts"]:
        context.exit(Exit.CONFLICT)


@run.command("list")
@click.argument("campaign", required=False)
@with_gateway
@with_screen
def list_(campaign: str | None, reach: Reach, screen: Screen) -> None:
    """Runs of CAMPAIGN, or of all."""
    control = reach.control()
    campaigns = [campaign] if campaign else [str(row["campaign"]) for row in control.campaigns()]
    rows = [{"campaign": each, **row} for each in campaigns for row in control.runs(each)]
    screen.present({"runs": rows}, Table(columns=COLUMNS, rows=[_shown(row) for row in rows], empty="No runs. `gateway run open CAMPAIGN` opens one."))


@run.command()
@click.argument("run")
@with_gateway
@with_screen
def show(run: str, reach: Reach, screen: Screen) -> None:
    """State of RUN, its limits, and how much of each is left."""
    control = reach.control()
    name = find_run(control, run)
    answer = control.run(name.campaign, name.run)
    keys = Table(columns=KEY_COLUMNS, rows=key_rows(answer["keys"]), empty="No keys.")
    times = Table(columns=TIMES, rows=answer["deadlines"], empty="No deadlines.")
    facts = Facts(title=f"Run {name}", row=_shown(answer), columns=FACTS)
    screen.present(answer, facts, Line(), limits_table(answer["limits"]), Line(), times, Line(), keys)


def _shown(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A run past its deadline stays open until somebody closes it, and is shown so."""
    return {**row, "state": f"{row['state']}, overdue"} if row.get("overdue") else row


def _opened(opened: Mapping[str, Any], address: str) -> list[View]:
    """What the person does next, ready to paste; the gateway's note where keys are not shown again."""
    name = f"{opened['campaign']}/{opened['run']}"
    views = [Line(f"# Run {name} is open." if opened["created"] else f"# Run {name} was open already.")]
    if note := opened.get("note"):
        views.append(Line(f"# {printable(note)}"))
    shown = {lane: secret for lane, secret in opened["keys"].items() if secret}
    views += [Line(line) for line in exports(address, shown)]
    views.append(Line(f"# When the agent is done: gateway run close {name} --exit $?"))
    return list(views)


def _results(exit_status: int | None, turn_end: str | None, judge: str | None, outcomes: tuple[str, ...]) -> dict[str, object]:
    results: dict[str, object] = {}
    if exit_status is not None:
        results["exit"] = exit_status
    if turn_end is not None:
        results["turn_end"] = turn_end
    if judge is not None:
        results["judge"] = judge
    if outcomes:
        results["outcomes"] = _named_outcomes(outcomes)
    return results


def _named_outcomes(outcomes: tuple[str, ...]) -> dict[str, str]:
    named: dict[str, str] = {}
    for outcome in outcomes:
        name, equals, value = outcome.partition("=")
        if not equals or not name:
            raise Problem(f"--outcome {outcome!r} has no value", "an outcome is written NAME=VALUE", "for example --outcome tests=passed")
        if name in named:
            raise Problem(f"--outcome {name!r} is given twice", "a name can have one value", "leave one of them out")
        named[name] = value
    return named
