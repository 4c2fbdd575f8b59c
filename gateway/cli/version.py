"""`gateway version`."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Final

import click

from gateway import __version__
from gateway.cli.screen import Line, Screen, with_screen

PARTS: Final = ("aiohttp", "orjson", "pydantic", "tiktoken", "uvloop")


@click.command()
@with_screen
def version(screen: Screen) -> None:
    """Versions of the gateway, of Python and of the parts that a report of a fault should name."""
    parts = {"gateway": __version__, "python": platform.python_version(), **{name: _installed(name) for name in PARTS}}
    screen.present(parts, *(Line(f"{name} {number}") for name, number in parts.items()))


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
