"""`gateway explain`: why a call was refused, clamped, made to wait, cut: which limit, with its numbers at that moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli.exits import Exit
from gateway.cli.problems import Problem
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
BODY_MAX: Final = 64 * 1024 * 1024
"""Bytes of a rebuilt request: more than any gateway takes by default."""
SAME: Final = ("received", "forwarded", "same_json")
ROLES: Final = {"limit": "refused it", "waited_on": "it waited for", "then_waited_on": "and then for", "clamped_by": "clamped it", "cut_by": "cut it"}


@click.command()
@click.argument("call_id")
@click.option(
    "--body",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A request rebuilt from a session log: say whether it is the one that was sent. Exits 1 if not.",
)
@with_ledger
@with_gateway
@with_screen
@click.pass_context
def explain(context: click.Context, call_id: str, body: Path | None, ledger: Path | None, reach: Reach, screen: Screen) -> None:
    """Why a call was refused, clamped, made to wait, or cut. CALL_ID is the `x-request-id` of its answer."""
    found = dict(_from_file(ledger, call_id) if ledger else reach.control().explain(call_id))
    if body is not None:
        found["body"] = _proof(found, body)
    facts = {**found, "run_name": f"{found.get('campaign', '')}/{found.get('run', '')}"}
    limits = [{**limit, "role": role} for key, role in ROLES.items() for limit in _limits(found.get(key, ()))]
    views: list[View] = [Facts(title=f"Call {call_id}", row=facts, columns=FACTS), Line()]
    views += [Line(printable(str(line))) for line in found["why"]]
    if limits:
        views += [Line(), Table(columns=LIMITS, rows=limits)]
    if body is not None:
        views += [Line(), Line(f"{body}: {found['body']['says']}"), *[Line(f"  {printable(line)}") for line in found["body"].get("differences", ())]]
    screen.present(found, *views)
    if body is not None and found["body"]["is"] not in SAME:
        context.exit(Exit.NOT_SO)


def _limits(told: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return [told] if isinstance(told, Mapping) else told


def _proof(found: Mapping[str, Any], body: Path) -> Mapping[str, Any]:
    from gateway.dialects.body_proof import proof_of_body

    try:
        with body.open("rb") as file:
            raw = file.read(BODY_MAX + 1)
    except OSError as error:
        raise Problem(f"{body} can't be read", error.strerror or str(error), "name the file of the rebuilt request", code="bad_body") from error
    if len(raw) > BODY_MAX:
        raise Problem(f"{body} can't be read as a request", f"it is larger than {BODY_MAX} bytes", "name the file of one request", code="bad_body")
    record: Mapping[str, Any] = next((entry.get("details", {}) for entry in found["entries"] if entry["kind"] == "reserve"), {})
    return proof_of_body(record, raw)


def _from_file(ledger: Path, call_id: str) -> Mapping[str, Any]:
    with open_ledger(ledger) as reader:
        return reader.explain(call_id)
