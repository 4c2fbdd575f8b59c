"""`gateway key`: the secrets that agents present. A secret is shown once, when it is issued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from gateway.cli.exits import Exit
from gateway.cli.naming import RunName, find_run
from gateway.cli.pasting import data_address, exports
from gateway.cli.problems import Problem
from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.screen import Column, Line, Screen, Table, with_screen
from gateway.cli.words import Kind
from gateway.client.control import ControlClient
from gateway.client.driver import base_url

KEY_ID_PREFIX: Final = "key-"
COLUMNS: Final = (
    Column("key_id", "KEY"),
    Column("campaign", "CAMPAIGN"),
    Column("run", "RUN"),
    Column("lane", "LANE"),
    Column("state", "STATE"),
    Column("issued_at_ms", "ISSUED", Kind.TIME),
)


@click.group()
def key() -> None:
    """Issue, revoke and list keys."""


@key.command()
@click.argument("run")
@click.option("--lane", default=None, metavar="LANE", help="The lane that the key is for. [default: the lane of the run's keys, where they have one]")
@with_gateway
@with_screen
def issue(run: str, lane: str | None, reach: Reach, screen: Screen) -> None:
    """Issue another key for RUN and print it, this once; the ones before stay good."""
    control = reach.control()
    name = find_run(control, run)
    address = data_address(control)
    issued = control.issue_key(name.campaign, name.run, lane or _only_lane(control, name))
    lines = exports(address, {issued["lane"]: issued["key"]})
    screen.present({**issued, "base_url": base_url(address)}, Line(f"# {issued['key_id']}"), *(Line(line) for line in lines))


@key.command()
@click.argument("key_or_run", metavar="KEY|RUN")
@click.option("--lane", default=None, metavar="LANE", help="Only the keys of this lane (with RUN).")
@click.option("--reason", default="", metavar="TEXT", help="Stands in the ledger.")
@with_gateway
@with_screen
def revoke(key_or_run: str, lane: str | None, reason: str, reach: Reach, screen: Screen) -> None:
    """Revoke a key by its id, or the keys of RUN. Takes effect at once: what these keys' calls are doing is cut."""
    control = reach.control()
    if key_or_run.startswith(KEY_ID_PREFIX) and "/" not in key_or_run:
        if lane is not None:
            raise Problem("--lane does not go with a key's id", "a key has one lane", "leave --lane out, or name the run")
        ids = [key_or_run]
    else:
        ids = _live_keys(control, key_or_run, lane)
    revoked = [control.revoke_key(one, reason=reason) for one in ids]
    screen.present({"revoked": revoked}, *(Line(f"{one} is revoked.") for one in ids))


@key.command("list")
@click.argument("run", required=False)
@click.option("--campaign", default=None, metavar="CAMPAIGN", help="Only this campaign's keys.")
@with_gateway
@with_screen
def list_(run: str | None, campaign: str | None, reach: Reach, screen: Screen) -> None:
    """Keys of RUN, of a campaign, or all: ids and states, never secrets."""
    control = reach.control()
    name = find_run(control, run) if run else None
    keys = control.keys(campaign=name.campaign if name else campaign or "", run=name.run if name else "")
    screen.present({"keys": keys}, Table(columns=COLUMNS, rows=key_rows(keys), empty="No keys."))


def key_rows(keys: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    return [{**key, "state": "revoked" if key["revoked"] else "live" if key["live"] else "closed"} for key in keys]


def _live_keys(control: ControlClient, run: str, lane: str | None) -> list[str]:
    name = find_run(control, run)
    keys = control.keys(campaign=name.campaign, run=name.run)
    ids = [str(key["key_id"]) for key in keys if not key["revoked"] and lane in (None, key["lane"])]
    if not ids:
        what = f"lane {lane}" if lane else "any lane"
        raise Problem(
            f"run {name} has no key to revoke", f"none of {what} is live", f"`gateway key list {name}` shows its keys", exit_code=Exit.REFUSED, code="not_found"
        )
    return ids


def _only_lane(control: ControlClient, name: RunName) -> str:
    lanes = sorted({str(key["lane"]) for key in control.keys(campaign=name.campaign, run=name.run)})
    if len(lanes) != 1:
        raise Problem(f"run {name} needs a lane to issue a key for", f"its keys are for {', '.join(lanes) or 'none'}", "name one with --lane LANE")
    return lanes[0]
