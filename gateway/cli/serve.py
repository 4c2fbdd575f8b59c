"""`gateway serve`: the gateway itself, by a gateway.toml."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import click

from gateway.cli.configured import USUAL_SETTINGS
from gateway.cli.screen import Screen, with_screen
from gateway.settings import load_settings


@click.command()
@click.option(
    "--config", type=click.Path(path_type=Path), default=USUAL_SETTINGS, show_default=True, metavar="FILE", help="Listeners, ledger, upstreams, bounds."
)
@click.option("--accept-restore", is_flag=True, help="The ledger is a backup, and I know: revoke every key, halt every open campaign, go on from there.")
@with_screen
def serve(config: Path, accept_restore: bool, screen: Screen) -> None:
    """Serve until SIGTERM or Ctrl-C. Prints where it listens once it is ready."""
    settings = load_settings(config)
    from gateway import app  # after the settings: what is wrong with them is told at once

    if not screen.as_json:
        app.serve(settings, accept_restore=accept_restore)
        return

    document = sys.stdout

    async def say(gateway: app.Gateway) -> None:
        ready = {"data": gateway.data.address, "control": str(settings.control.socket), "ledger": str(settings.ledger.path)}
        print(json.dumps({"ready": ready}), file=document, flush=True)

    with contextlib.redirect_stdout(sys.stderr):  # stdout holds the one document
        app.serve(settings, say, accept_restore=accept_restore)
