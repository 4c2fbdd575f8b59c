"""`gateway correct`: a correction is appended; what stood before stays where it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from gateway.cli.naming import find_run
from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.receipt_views import receipt_views
from gateway.cli.screen import Column, Line, Screen, Table, with_screen
from gateway.cli.words import Kind

CALL_PREFIX: Final = "call-"
USAGE: Final = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "tool_calls")
RESULTS: Final = ("exit", "turn_end", "judge")
OUTCOME: Final = "outcome."


@click.command()
@click.argument("what", metavar="RUN|CALL")
@click.option(
    "--set", "given", multiple=True, required=True, metavar="NAME=VALUE", help=f"Of a call: {', '.join(USAGE)}. Of a run: exit, turn_end, judge, outcome.NAME."
)
@click.option("--why", required=True, metavar="TEXT", help="Goes on record.")
@click.option("--evidence", default="", metavar="TEXT", help="Of a call: what shows that it was so, e.g. a log's name and line.")
@with_gateway
@with_screen
def correct(what: str, given: tuple[str, ...], why: str, evidence: str, reach: Reach, screen: Screen) -> None:
    """Append a correction of a call's usage, or of a closed run's results; the run's next receipt names the one that it replaces."""
    control = reach.control()
    pairs = [_pair(each) for each in given]
    if what.startswith(CALL_PREFIX):
        answer = control.correct_call(what, {name: _tokens(name, value) for name, value in pairs}, why, evidence or why)
        screen.present(answer, *_changed(answer))
        return
    name = find_run(control, what)
    if control.run(name.campaign, name.run)["state"] == "open":
        raise click.UsageError(f"run {name} is open: its results are declared when it is closed (`gateway run close`)")
    closed = control.close_run(name.campaign, name.run, results=_results(pairs), reason=why)
    screen.present(closed, *receipt_views(str(name), closed["receipt"]))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--set")
    return name, value


def _tokens(name: str, value: str) -> int:
    if name not in USAGE:
        raise click.BadParameter(f"{name!r} is nothing that a call used; it may be {', '.join(USAGE)}", param_hint="--set")
    if not value.isdecimal():
        raise click.BadParameter(f"{name}: {value!r} is no whole number", param_hint="--set")
    return int(value)


def _results(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, value in pairs:
        if name.startswith(OUTCOME):
            results.setdefault("outcomes", {})[name.removeprefix(OUTCOME)] = value
        elif name not in RESULTS:
            raise click.BadParameter(f"{name!r} is no result of a run; it may be {', '.join(RESULTS)}, {OUTCOME}NAME", param_hint="--set")
        else:
            results[name] = int(value) if name == "exit" and value.lstrip("-").isdecimal() else value
    return results


def _changed(answer: dict[str, Any]) -> list[Table | Line]:
    before, after = answer["before"], answer["after"]
    rows = [{"name": name, "before": before[name], "after": after[name]} for name in (*USAGE, "source") if before[name] != after[name]]
    columns = (Column("name", "CORRECTED"), Column("before", "BEFORE", Kind.TEXT), Column("after", "AFTER", Kind.TEXT))
    return [Table(columns=columns, rows=rows, empty="Nothing differs from what stood.")]
