"""`gateway serve`: the gateway itself, by a gateway.toml."""

from __future__ import annotations

from pathlib import Path

import click

from gateway.cli.screen import Screen, with_screen


@click.command()
@click.option(
    "--config", type=click.Path(path_type=Path), default=Path("gateway.toml"), show_default=True, metavar="FILE", help="Listeners, ledger, upstreams, bounds."
)
@with_screen
def serve(config: Path, screen: Screen) -> None:
    """Serve until SIGTERM or Ctrl-C. Prints where it listens once it is ready."""
    from gateway.settings import load_settings

    settings = load_settings(config)
    from gateway.app import serve as serve_gateway

    serve_gateway(settings)
