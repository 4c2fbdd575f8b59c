"""`gateway policy`: what a policy file says. Reads files only; no gateway has to run, but for `reload`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli.configured import settings_path, with_config
from gateway.cli.exits import Exit
from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.screen import Column, Line, Screen, Table, with_screen
from gateway.errors import ConfigurationError
from gateway.policy import LoadedPolicy, limits_hash, load_policy
from gateway.policy.declared import dotted
from gateway.settings import Settings, SettingsTable, explain_effective, load_settings

CHECKED: Final = (Column("file", "FILE"), Column("result", "RESULT"), Column("hash", "HASH"))
KEYS: Final = (Column("key", "KEY"), Column("value", "VALUE"))
RELOADED: Final = (Column("policy", "POLICY"), Column("change", "CHANGE"), Column("hash", "HASH"))
EFFECTIVE: Final = (Column("name", "NAME"), Column("value", "VALUE"), Column("origin", "SET AT"))

FILE: Final = click.Path(path_type=Path)


@click.group()
def policy() -> None:
    """Check, show and reload policy files."""


@policy.command()
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@with_config
@with_screen
@click.pass_context
def check(context: click.Context, files: tuple[Path, ...], config: Path | None, screen: Screen) -> None:
    """Say of each FILE whether it can be served, and every reason why not: file, line, key and mend.

    Where there is a gateway.toml, also whether its upstreams and limits can keep the policy. Exits 2 where one can't.
    """
    settings = _settings(config)
    rows = [_checked(file, settings) for file in files]
    against = settings.file if settings else None
    reasons = [line for row in rows for line in row["errors"]]
    held = Line(f"held against {against}" if against else "held against no gateway.toml: whether an upstream serves its models was not looked at")
    screen.present({"settings": against, "policies": rows}, Table(columns=CHECKED, rows=rows), held)
    for line in reasons:
        click.echo(line, err=True)
    if reasons:
        context.exit(Exit.USAGE)


@policy.command()
@click.argument("file", type=FILE)
@click.option("--effective", is_flag=True, help="Every rule and limit that holds, those of gateway.toml included, and where each is set.")
@with_config
@with_screen
def show(file: Path, effective: bool, config: Path | None, screen: Screen) -> None:
    """What FILE says, with every default filled in: the form that a campaign is served from."""
    loaded = load_policy(file)
    if effective:
        _show_effective(loaded, _settings(config), screen)
        return
    content = json.loads(loaded.canonical)
    rows = [{"key": dotted(path), "value": json.dumps(value, ensure_ascii=False)} for path, value in _leaves(content, ())]
    document = {"name": loaded.name, "hash": loaded.hash, "policy": content}
    screen.present(document, Line(f"Policy {loaded.name}, hash {loaded.hash}"), Table(columns=KEYS, rows=rows))


@policy.command()
@with_gateway
@with_screen
def reload(reach: Reach, screen: Screen) -> None:
    """Let the running gateway read its policy files anew. All are taken, or, where one is wrong, none.

    Open campaigns keep the version that they were opened with. SIGHUP to the gateway's process does the same.
    """
    answer = reach.control().reload_policies()
    gone = [Line(f"removed: {name}") for name in answer["removed"]]
    screen.present(answer, Table(columns=RELOADED, rows=answer["policies"], empty="No policies."), *gone)


def _show_effective(loaded: LoadedPolicy, settings: Settings | None, screen: Screen) -> None:
    known = settings or Settings(file="", table=SettingsTable.model_construct(upstreams={}))
    if settings:
        settings.check_policy(loaded)
    rows = [row._asdict() for row in explain_effective(loaded, known)]
    hashed = limits_hash(loaded.policy, known.limits)
    document = {"name": loaded.name, "hash": loaded.hash, "limits_hash": hashed, "settings": settings.file if settings else None, "effective": rows}
    under = settings.file if settings else "no gateway.toml"
    screen.present(document, Line(f"Policy {loaded.name} under {under}, limits hash {hashed}"), Table(columns=EFFECTIVE, rows=rows))


def _settings(config: Path | None) -> Settings | None:
    path = settings_path(config)
    return load_settings(path) if path else None


def _checked(file: Path, settings: Settings | None) -> dict[str, Any]:
    try:
        loaded = load_policy(file)
        if settings:
            settings.check_policy(loaded)
    except ConfigurationError as error:
        return {"file": str(file), "result": "wrong", "errors": str(error).splitlines()}
    return {"file": str(file), "result": "ok", "hash": loaded.hash, "errors": []}


def _leaves(tree: Mapping[str, object], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value
