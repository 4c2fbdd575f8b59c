"""`gateway up`: the gateway on embedded defaults, with a small engine of its own where none is named."""

from __future__ import annotations

import click

from gateway.cli.hooks import run_hook
from gateway.cli.screen import Screen, with_screen


@click.command()
@click.option("--engine", default=None, metavar="URL", help="A model server that runs, e.g. http://127.0.0.1:8080. [default: a small llama.cpp is started]")
@with_screen
@click.pass_context
def up(context: click.Context, engine: str | None, screen: Screen) -> None:
    """Start an engine and the gateway, open a campaign and a run, print what to paste, and serve."""
    context.exit(run_hook("gateway.demo.up", engine=engine, as_json=screen.as_json))
