"""`gateway preflight`: what a driver believes of a run's limits, held against what holds."""

from __future__ import annotations

import re

import click

from gateway.cli.exits import Exit
from gateway.cli.naming import find_run
from gateway.cli.problems import Problem
from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.screen import Line, Screen, with_screen
from gateway.cli.words import printable
from gateway.client.control import ControlError

FAILED = "preflight_failed"


@click.command()
@click.argument("run", required=False)
@click.option("--run", "named", default="", metavar="RUN", help="The run, where it is not the argument.")
@click.option("--lane", default="", metavar="LANE", help="Endings of names are looked for among this lane's limits first.")
@click.option("--expect", "expected", multiple=True, required=True, metavar="NAME=VALUE", help="A limit and its ceiling, or policy=HASH; may be repeated.")
@with_gateway
@with_screen
@click.pass_context
def preflight(context: click.Context, run: str | None, named: str, lane: str, expected: tuple[str, ...], reach: Reach, screen: Screen) -> None:
    """Check what you believe of RUN's limits, and print each difference. Exits 1 where there is one.

    NAME is a limit's name, or any ending of it that fits exactly one; `policy` and `limits` are the two hashes. Where the policy requires a preflight,
    the run's calls are refused until one has passed.
    """
    if bool(run) == bool(named):
        raise Problem("the run is not named once", "it is the argument, or --run", "for example: gateway preflight pilot/r1 --expect run.requests=10")
    expectation = _expectation(expected)
    control = reach.control()
    name = find_run(control, run or named)
    try:
        answer = control.preflight(name.campaign, name.run, expectation, lane)
    except ControlError as error:
        if error.code != FAILED:
            raise
        differences = error.details["differences"]
        screen.present({"passed": False, "differences": differences}, *(Line(printable(str(each["message"]))) for each in differences))
        context.exit(Exit.NOT_SO)
    screen.present(answer, Line(f"Run {name}: {len(expectation)} as expected."))


def _expectation(expected: tuple[str, ...]) -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    for each in expected:
        name, equals, value = each.rpartition("=")  # a model's name may hold one
        if not equals or not name or not value:
            raise Problem(f"--expect {each!r} has no value", "an expectation is written NAME=VALUE", "for example --expect run.requests=10")
        if name in found:
            raise Problem(f"--expect {name!r} is given twice", "a name can have one value", "leave one of them out")
        found[name] = int(value) if re.fullmatch(r"[0-9]{1,16}", value) else value
    return found
