"""Which gateway.toml a command reads: the one that is named, else the one that lies here."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

USUAL_SETTINGS: Final = Path("gateway.toml")

with_config = click.option(
    "--config", type=click.Path(path_type=Path), default=None, metavar="FILE", help="The gateway.toml to read. [default: ./gateway.toml, where there is one]"
)


def settings_path(config: Path | None) -> Path | None:
    if config is not None:
        return config
    return USUAL_SETTINGS if USUAL_SETTINGS.is_file() else None
