"""`gateway explain`: why a call was refused, clamped, made to wait, cut: which limit, with its numbers at that moment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.reading import open_ledger, with_ledger
from gateway.cli.screen import Column, Facts, Line, Screen, Table, View, with_screen
from gateway.cli.words import Kind, printable

FACTS: Final = (
    Column("run_name", "run"),
    Column("lane", "lane"),
    Column("model", "model"),
    Column("status", "status"),
    Column("outcome", "outcome"),
    Column("code", "code"),
    Column("at_ms", "at", Kind.TIME),
)
LIMITS: Final = (
    Column("role", "LIMIT THAT"),
    Column("name", "NAME"),
    Column("ceiling", "CEILING", Kind.OPTIONAL_NUMBER),
    Column("settled", "SETTLED", Kind.OPTIONAL_NUMBER),
    Column("reserved", "RESERVED", Kind.OPTIONAL_NUMBER),
    Column("asked", "ASKED", Kind.OPTIONAL_NUMBER),
    Column("resets_at_ms", "RESETS AT", Kind.TIME),
)
ROLES: Final = {"limit": "refused it", "waited_on": "it waited for", "clamped_by": "clamped it", "cut_by": "cut it"}


@click.command()
@click.argument("call_id")
@with_ledger
@with_gateway
@with_screen
def explain(call_id: str, ledger: Path | None, reach: Reach, screen: Screen) -> None:
    """Why a call was refused, clamped, made to wait, or cut. CALL_ID is the `x-request-id` of its answer."""
    found = _from_file(ledger, call_id) if ledger else reach.control().explain(call_id)
    facts = {**found, "run_name": f"{found.get('campaign', '')}/{found.get('run', '')}"}
    limits = [{**found[key], "role": role} for key, role in ROLES.items() if key in found]
    views: list[View] = [Facts(title=f"Call {call_id}", row=facts, columns=FACTS), Line()]
    views += [Line(printable(str(line))) for line in found["why"]]
    if limits:
        views += [Line(), Table(columns=LIMITS, rows=limits)]
    screen.present(found, *views)


def _from_file(ledger: Path, call_id: str) -> Mapping[str, Any]:
    with open_ledger(ledger) as reader:
        return reader.explain(call_id)
