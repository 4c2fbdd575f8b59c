"""`gateway up`: the gateway on embedded defaults, with a small engine of its own where none is named."""

from __future__ import annotations

import contextlib
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.pasting import called_as, exports
from gateway.cli.screen import Screen, with_screen

if TYPE_CHECKING:
    from gateway.app import Gateway

FOLDER = Path(".run")
CURL = """curl {url}/chat/completions -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d {body}"""


@click.command()
@click.option("--engine", default=None, metavar="URL", help="A model server that runs, e.g. http://127.0.0.1:8080. [default: a small llama.cpp is started]")
@click.option(
    "--folder", type=click.Path(path_type=Path), default=FOLDER, show_default=True, metavar="DIR", help="Where gateway.toml, policy and ledger are made."
)
@with_screen
def up(engine: str | None, folder: Path, screen: Screen) -> None:
    """Start an engine and the gateway, open a campaign and a run, print what to paste, and serve."""
    from gateway.app import serve
    from gateway.demo.embedded import Fronted, look_at, make
    from gateway.demo.engine import smollm2_engine
    from gateway.settings import load_settings

    with contextlib.ExitStack() as stack:
        if engine is None:
            small = stack.enter_context(smollm2_engine(progress=_progress))
            fronted = Fronted(address=small.address, kind="llama.cpp", models=("smollm2",), slots=2)
        else:
            _progress(f"asking {engine} what it is")
            fronted = look_at(engine)
            _progress(f"it is {fronted.kind} with {', '.join(fronted.models)}")
        settings = load_settings(make(folder, fronted))

        async def ready(gateway: Gateway) -> None:
            _told(screen, await _opened(gateway, fronted.models[0], folder))

        serve(settings, ready)
    _progress("stopped; everything is settled")


async def _opened(gateway: Gateway, model: str, folder: Path) -> dict[str, str]:
    """A campaign for this version of the policy, where there is none yet, and a run of its own."""
    from gateway.policy import load_policy

    loaded = load_policy(gateway.settings.policies / "embedded.toml")
    gateway.settings.check_policy(loaded)
    campaign, _ = await gateway.runs.open_campaign(f"embedded-{loaded.hash[:8]}", loaded)
    opened = await gateway.runs.open_run(campaign.campaign)
    key = opened.keys["foreground"] or ""
    url = f"{gateway.data.address}/v1"
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Say hello."}]})
    return {
        "base_url": url,
        "key": key,
        "address": gateway.data.address,
        "campaign": campaign.campaign,
        "run": opened.run,
        "ledger": str(gateway.settings.ledger.path),
        "config": str(folder / "gateway.toml"),
        "curl": CURL.format(url=url, key=key, body=shlex.quote(body)),
    }


def _told(screen: Screen, made: dict[str, str]) -> None:
    if screen.as_json:
        click.echo(json.dumps(made))
        return
    name = f"{made['campaign']}/{made['run']}"
    click.echo(f"\nrun {name} is open; its book is {made['ledger']}. Paste into another shell:\n")
    for line in exports(made["address"], {"foreground": made["key"]})[1:]:
        click.echo(line)
    click.echo(f"\n{made['curl']}\n")
    call, config = called_as(), shlex.quote(made["config"])
    click.echo(f"Then: {call} --help; {call} usage --config {config}; {call} run close {name} --config {config}")
    click.echo("serving; Ctrl-C stops")


def _progress(text: str) -> None:
    click.echo(text, err=True)
