"""`gateway mock-engine`: a scripted model server to try a set-up against."""

from __future__ import annotations

from pathlib import Path

import click

from gateway.cli.hooks import run_hook
from gateway.cli.screen import Screen, with_screen


@click.command("mock-engine")
@click.option("--listen", default="127.0.0.1:8090", show_default=True, metavar="HOST:PORT", help="Where it listens; port 0 takes a free one.")
@click.option("--script", type=click.Path(path_type=Path), default=None, metavar="FILE", help="What it answers. [default: a short answer with usage]")
@click.option("--log", type=click.Path(path_type=Path), default=None, metavar="FILE", help="Writes each call that it saw as one JSON line.")
@with_screen
@click.pass_context
def mock_engine(context: click.Context, listen: str, script: Path | None, log: Path | None, screen: Screen) -> None:
    """Serve chat completions by a script, and log each call, each byte's moment and each close."""
    context.exit(run_hook("gateway.mock_engine", listen=listen, script=script, log=log, as_json=screen.as_json))
