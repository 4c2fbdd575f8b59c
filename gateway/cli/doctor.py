"""`gateway doctor`: what is wrong with a set-up, line by line, each with its mend."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.configured import USUAL_SETTINGS
from gateway.cli.exits import Exit
from gateway.cli.screen import Line, Screen, with_screen
from gateway.cli.words import printable
from gateway.settings import load_settings

if TYPE_CHECKING:
    from gateway.doctor import Examination


@click.command()
@click.option("--config", type=click.Path(path_type=Path), default=USUAL_SETTINGS, show_default=True, metavar="FILE", help="The gateway.toml that is examined.")
@click.option("--upstream", default="", metavar="NAME", help="Ask only this engine. [default: all]")
@with_screen
@click.pass_context
def doctor(context: click.Context, config: Path, upstream: str, screen: Screen) -> None:
    """Look at engines, machine and listeners, and say what is wrong: each line ok, warn or fail, with the mend.

    Changes nothing, takes no lock and spends from no budget; a gateway may run meanwhile. Each engine gets two short calls. Exits 1 where a line says fail;
    warn leaves it 0.
    """
    settings = load_settings(config)
    from gateway.doctor import examine  # here, not above: no other command waits for its HTTP client

    found = asyncio.run(examine(settings, os.environ, upstream=upstream))
    screen.present(document(found), *(Line(printable(line)) for line in written(found)))
    if not found.good:
        context.exit(Exit.NOT_SO)


def document(found: Examination) -> dict[str, object]:
    counts = {str(status): found.count(status) for status in type(found.lines[0].status)}
    return {"good": found.good, "gateway_runs": found.gateway_runs, **counts, "lines": [dataclasses.asdict(line) for line in found.lines]}


def written(found: Examination) -> Iterator[str]:
    about = max(len(line.about) for line in found.lines)
    check = max(len(line.check) for line in found.lines)
    for line in found.lines:
        yield f"{line.status:<4}  {line.about:<{about}}  {line.check:<{check}}  {line.text}"
        if line.mend:
            yield f"{'':<{4 + 2 + about + 2 + check + 2}}mend: {line.mend}"
