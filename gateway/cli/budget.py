"""`gateway run budget`: every limit that a run can meet, what is left of it, and where it was set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from gateway.cli.limit_views import limits_table
from gateway.cli.naming import find_run
from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.screen import Column, Facts, Line, Screen, Table, View, with_screen
from gateway.cli.words import Kind

FACTS: Final = (
    Column("lane", "lane"),
    Column("state", "state"),
    Column("policy", "policy"),
    Column("policy_hash", "policy hash"),
    Column("limits_hash", "limits hash"),
    Column("checked", "preflight"),
)
CAPS: Final = (Column("name", "OF EACH CALL"), Column("ceiling", "CEILING", Kind.NUMBER), Column("origin", "SET AT"))
TIMES: Final = (
    Column("name", "DEADLINE"),
    Column("ceiling", "SECONDS", Kind.NUMBER),
    Column("left", "LEFT", Kind.OPTIONAL_NUMBER),
    Column("ends_at_ms", "UNTIL", Kind.TIME),
    Column("origin", "SET AT"),
)


@click.command()
@click.argument("run")
@click.option("--lane", default="", metavar="LANE", help="Only what the calls of this lane can meet. [default: all lanes]")
@with_gateway
@with_screen
def budget(run: str, lane: str, reach: Reach, screen: Screen) -> None:
    """Every limit that calls of RUN can meet: ceiling, settled, reserved, left, when it renews, and the file and line that set it."""
    control = reach.control()
    name = find_run(control, run)
    answer = control.run_budget(name.campaign, name.run, lane)
    facts = {**answer, "checked": _checked(answer["preflight"])}
    views: list[View] = [Facts(title=f"Budget of run {name}", row=facts, columns=FACTS), Line(), limits_table(answer["limits"])]
    for columns, rows in ((CAPS, answer["call"]), (TIMES, answer["deadlines"])):
        if rows:
            views += [Line(), Table(columns=columns, rows=rows)]
    screen.present(answer, *views)


def _checked(preflight: Mapping[str, Any]) -> str:
    if preflight["passed"]:
        return "passed"
    return "required, and not passed yet" if preflight["required"] else "none, and none is required"
