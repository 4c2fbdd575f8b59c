"""What a user is told when something does not work: three short lines on stderr (problem, cause, mend), never a traceback for a mistake of theirs."""

from __future__ import annotations

import json

import click

from gateway.cli.exits import Exit
from gateway.cli.words import printable
from gateway.client.control import ControlError
from gateway.errors import (
    AddressUnavailable,
    ClockUncertain,
    CommandRejected,
    ConfigurationError,
    GatewayError,
    LedgerCorrupt,
    LedgerLocked,
    LedgerUnavailable,
    MixedLabels,
    NotFound,
    NotYet,
    RecordProblem,
    ZoneUnclear,
)


class Problem(Exception):
    """Ends a command. `code` is for scripts (`--json`), the three lines are for people."""

    def __init__(self, problem: str, cause: str, mend: str, *, exit_code: Exit = Exit.USAGE, code: str = "usage") -> None:
        super().__init__(problem)
        self.problem = problem
        self.cause = cause
        self.mend = mend
        self.exit_code = exit_code
        self.code = code


def say(problem: Problem, *, as_json: bool) -> None:
    """Three lines on stderr; with `--json` also one document on stdout, so that there is always exactly one."""
    for label, text in (("problem", problem.problem), ("cause", problem.cause), ("mend", problem.mend)):
        for index, line in enumerate(text.splitlines() or [""]):
            click.echo(f"{label + ':' if index == 0 else '':<9}{printable(line)}", err=True)
    if as_json:
        error = {"code": problem.code, "problem": problem.problem, "cause": problem.cause, "mend": problem.mend, "exit": int(problem.exit_code)}
        click.echo(json.dumps({"error": error}, indent=2))


def from_usage(error: click.ClickException) -> Problem:
    """A command line that click could not read."""
    context = getattr(error, "ctx", None)
    path = context.command_path if isinstance(context, click.Context) else "gateway"
    cause = context.command.get_usage(context) if isinstance(context, click.Context) else "gateway can't read this command line"
    return Problem(error.format_message(), " ".join(cause.split()), f"`{path} --help` lists what it takes")


def from_gateway_error(error: GatewayError) -> Problem:
    """The errors of the house, each with the exit code that fits."""
    text = str(error) or type(error).__doc__ or type(error).__name__
    match error:
        case AddressUnavailable():
            return Problem(
                "the gateway can't listen", text, "name another address, or end what listens there", exit_code=Exit.REFUSED, code="address_unavailable"
            )
        case ConfigurationError() if (told := _told(text)) is not None:
            return told
        case ConfigurationError():
            return Problem("the configuration can't be used", text, "mend what is named, then ask again", code="configuration")
        case RecordProblem():
            return Problem("the records can't be reconciled", text, "docs/reconciliation.md says where each agent keeps its record", code="bad_record")
        case NotYet():
            return Problem("not found", text, "leave --as-of out for all that there is", exit_code=Exit.REFUSED, code="not_found")
        case NotFound():
            return Problem("not found", text, "`gateway campaign list` and `gateway run list` show what there is", exit_code=Exit.REFUSED, code="not_found")
        case MixedLabels():
            return Problem(
                "usage is not added over several labels", text, "sum --by label, name one --campaign or --run, or say --across-labels", code="mixed_labels"
            )
        case ZoneUnclear():
            return Problem("usage by day needs a time zone", text, "name it, e.g. --zone Europe/Berlin; or ask of one --campaign", code="zone")
        case LedgerLocked():
            return Problem("the ledger is in use", text, "stop that process, or name another ledger", exit_code=Exit.REFUSED, code="ledger_locked")
        case LedgerCorrupt():
            return Problem("the ledger does not add up", text, "`gateway ledger verify` names the first entry", exit_code=Exit.NOT_SO, code="ledger_corrupt")
        case LedgerUnavailable():
            return Problem("the ledger can't be used", text, "name the right file (--ledger FILE), or mend the disk", code="ledger_unavailable")
        case ClockUncertain():
            return Problem("the clock is uncertain", text, "`gateway ledger clock` shows why", exit_code=Exit.NOT_SO, code="clock")
        case CommandRejected():
            return Problem("refused", text, "`gateway run show` and `gateway campaign show` tell the state", exit_code=Exit.REFUSED, code="rejected")
        case _:
            return Problem("the gateway could not do that", text, "`gateway --help`", exit_code=Exit.REFUSED, code="error")


def _told(text: str) -> Problem | None:
    """An error that says its own cause and mend, each on a line of its own."""
    problem, found, rest = text.partition("\n  cause: ")
    cause, with_mend, mend = rest.partition("\n  mend:  ")
    return Problem(problem, cause, mend, code="configuration") if found and with_mend else None


def from_control_error(error: ControlError) -> Problem:
    """The control plane's own three lines; status 0 means that nothing answered at all."""
    if error.status == 0:
        return Problem(error.problem, error.cause, error.mend, exit_code=Exit.UNREACHABLE, code=error.code or "unreachable")
    exit_code = Exit.USAGE if error.status == 400 else Exit.REFUSED
    return Problem(error.problem, error.cause, error.mend, exit_code=exit_code, code=error.code or "refused")
