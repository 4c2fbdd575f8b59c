"""`gateway upstream list`, `drain` and `resume`: how the engines of a running gateway stand, and whether they get calls."""

from __future__ import annotations

from typing import Any, Final

import click

from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.screen import Column, Facts, Screen, Table, with_screen
from gateway.cli.words import Kind

COLUMNS: Final = (
    Column("upstream", "UPSTREAM"),
    Column("engine", "ENGINE"),
    Column("models", "MODELS"),
    Column("standing", "STANDING"),
    Column("busy", "BUSY", Kind.NUMBER),
    Column("slots", "SLOTS", Kind.NUMBER),
    Column("reason", "REASON"),
)


@click.command("list")
@with_gateway
@with_screen
def list_(reach: Reach, screen: Screen) -> None:
    """Every upstream of the running gateway: whether it gets calls, and why not."""
    found = reach.control().upstreams()
    screen.present({"upstreams": found}, Table(title="", columns=COLUMNS, rows=[_row(one) for one in found], empty="no upstreams"))


@click.command()
@click.argument("name")
@with_gateway
@with_screen
def drain(name: str, reach: Reach, screen: Screen) -> None:
    """Send no new calls to the upstream NAME; those that run go on.

    Others that serve its models take them; where there is none, calls are refused as engine_unavailable, and who waits goes on waiting. Until `gateway
    upstream resume NAME` or a restart.
    """
    _show(screen, reach.control().drain(name))


@click.command()
@click.argument("name")
@with_gateway
@with_screen
def resume(name: str, reach: Reach, screen: Screen) -> None:
    """Let the upstream NAME have calls again. It is asked anew which model it has."""
    _show(screen, reach.control().resume_upstream(name))


def _show(screen: Screen, found: dict[str, Any]) -> None:
    screen.present(found, Facts(title="", columns=COLUMNS, row=_row(found)))


def _row(found: dict[str, Any]) -> dict[str, Any]:
    mismatch = "; ".join(f"{model}: {how}" for model, how in found["mismatch"].items())
    return {**found, "models": ", ".join(found["models"]), "reason": "; ".join(part for part in (found["reason"], mismatch) if part)}
