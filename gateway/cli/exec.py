"""`gateway exec`: a run around one command: opened before it, closed with its exit status after it, whatever way it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import click

from gateway.cli.exits import Exit
from gateway.cli.plan_file import read_pins
from gateway.cli.problems import Problem
from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.screen import Screen, with_screen
from gateway.client.driver import Closed, DrivenRun, Driver, PreflightFailed, Results

PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
"""Signals that are for the command; this process waits for it to end."""
NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126


@click.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--campaign", required=True, metavar="CAMPAIGN", help="Campaign in which the run is opened.")
@click.option("--run", "run", default="", metavar="RUN", help="Its id. [default: a new one]")
@click.option("--task", default="", metavar="TASK", help="What the run is an attempt at.")
@click.option("--label", default="", metavar="LABEL", help="Label of the run, fixed from now on.")
@click.option("--repeat", type=click.IntRange(min=1), metavar="N", help="Which attempt at its task.")
@click.option("--pin", "pins", multiple=True, metavar="FILE|NAME=sha256:DIGEST", help="What makes the run what it is; may be repeated.")
@click.option("--lane", "lanes", multiple=True, metavar="LANE", help="Lane of the command; further ones get variables of their own. [default: foreground]")
@click.option(
    "--expect", "expected", multiple=True, metavar="NAME=VALUE", help="A limit and its value, or policy=HASH; the command is not begun where it differs."
)
@click.option("--drain", "drain_seconds", type=click.IntRange(min=0), default=0, metavar="SECONDS", help="Let calls that still run end. [default: cut them]")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@with_gateway
@with_screen
@click.pass_context
def exec_(
    context: click.Context,
    campaign: str,
    run: str,
    task: str,
    label: str,
    repeat: int | None,
    pins: tuple[str, ...],
    lanes: tuple[str, ...],
    expected: tuple[str, ...],
    drain_seconds: int,
    command: tuple[str, ...],
    reach: Reach,
    screen: Screen,
) -> None:
    """Open a run, run COMMAND with its keys, close the run with COMMAND's exit status, and exit with it.

    COMMAND finds OPENAI_BASE_URL and OPENAI_API_KEY of the first lane; GATEWAY_KEY_LANE holds the key of each, GATEWAY_CAMPAIGN and GATEWAY_RUN name the run.
    Signals are passed on to it. What the gateway says of the run goes to stderr, with --json as one document.
    """
    expectations = _expectations(expected)
    asked = lanes or ("foreground",)
    driver = Driver(reach.socket_path(), control=reach.control())
    with driver.run(campaign, run, task=task, label=label, lanes=asked, repeat=repeat or 0, pins=read_pins(pins)) as driven:
        if not screen.as_json:
            _say(f"run {driven.campaign}/{driven.run} is open. {driven.note}".rstrip())
        _preflight(driven, expectations, asked)
        status = _carried_out(command, _environment(driven, asked))
        closed = driven.close(Results(exit=status), drain_seconds=drain_seconds)
    _say(json.dumps({"exit": status, "receipt": closed.receipt, "conflicts": list(closed.conflicts)}) if screen.as_json else _told(driven, status, closed))
    context.exit(status)


def _expectations(given: Sequence[str]) -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    for each in given:
        name, equals, value = each.rpartition("=")
        if not equals or not name:
            raise click.BadParameter(f"{each!r} is not NAME=VALUE", param_hint="--expect")
        found[name] = int(value) if value.isdecimal() else value
    return found


def _preflight(driven: DrivenRun, expected: Mapping[str, int | str], lanes: Sequence[str]) -> None:
    if not expected:
        return
    try:
        driven.preflight(expected, lanes[0])
    except PreflightFailed as failed:
        driven.close(Results(turn_end="blocked"))
        raise Problem(
            "the run is not what was expected, so the command was not begun",
            "\n".join(failed.words),
            "mend the policy or the expectation; the run is closed as blocked",
            exit_code=Exit.NOT_SO,
            code="preflight_failed",
        ) from None


def _environment(driven: DrivenRun, lanes: Sequence[str]) -> dict[str, str]:
    keys = {f"GATEWAY_KEY_{lane.upper().replace('-', '_')}": driven.key(lane) for lane in lanes}
    return {**os.environ, **driven.environment(lanes[0]), **keys, "GATEWAY_CAMPAIGN": driven.campaign, "GATEWAY_RUN": driven.run}


def _carried_out(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The exit status as a shell has it: 128 + the signal that ended it."""
    try:
        process = subprocess.Popen(command, env=environment)
    except FileNotFoundError:
        _say(f"{command[0]}: no such command")
        return NOT_FOUND
    except OSError as error:
        _say(f"{command[0]}: {error.strerror}")
        return NOT_EXECUTABLE
    with _signals_passed_on(process):
        returned = process.wait()
    return returned if returned >= 0 else 128 - returned


@contextmanager
def _signals_passed_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A terminal sends Ctrl-C to both of us; a command that has ended takes no signal."""

    def pass_on(number: int, _frame: object) -> None:
        if process.poll() is None:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _told(driven: DrivenRun, status: int, closed: Closed) -> str:
    totals = closed.receipt["totals"]
    used = totals["usage"]
    calls, given, made = totals["calls"], _sum(used, "input_tokens"), _sum(used, "output_tokens")
    lines = [f"run {driven.campaign}/{driven.run} is closed: exit {status}, {calls} calls, {given} in, {made} out"]
    lines += [f"conflict: {conflict}" for conflict in closed.conflicts]
    return "\n".join(lines)


def _sum(used: Mapping[str, Mapping[str, int]], name: str) -> str:
    unknown = used[name]["unknown"]
    return f"{used[name]['sum']:,}" + (f" (and {unknown} calls unknown)" if unknown else "")


def _say(text: str) -> None:
    click.echo(text, err=True)
