"""`gateway demo`: the story of a capped run, on a real engine, in a minute."""

from __future__ import annotations

import click

from gateway.cli.hooks import run_hook
from gateway.cli.screen import Screen, with_screen


@click.command()
@with_screen
@click.pass_context
def demo(context: click.Context, screen: Screen) -> None:
    """A run with a small cap, a real client that spends it, the clamp, the final refusal, and the books held against the engine's own counters."""
    context.exit(run_hook("gateway.demo.story", as_json=screen.as_json))
