"""`gateway upstream`: what stands at the address of a model server, before it is in gateway.toml."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from gateway.cli.exits import Exit
from gateway.cli.problems import Problem
from gateway.cli.screen import Line, Screen, with_screen
from gateway.cli.upstream_table import Wanted, facts, health_line, models_of, name_of, toml
from gateway.cli.upstreams import drain, list_, resume
from gateway.errors import EngineFailure
from gateway.settings.declaration import UpstreamSettings
from gateway.settings.loading import settings_from_text
from gateway.settings.settings import wrong_with_secret

if TYPE_CHECKING:
    from gateway.upstream.probe import Probed

FAILED = "engine_unreachable"


@click.group()
def upstream() -> None:
    """Model servers: what stands at an address, and how those of a running gateway stand."""


for _command in (list_, drain, resume):
    upstream.add_command(_command)


@upstream.command("probe")
@click.argument("url")
@click.option("--name", default="", metavar="NAME", help="The table's name. [default: the kind of engine]")
@click.option("--model", "models", multiple=True, metavar="NAME", help="The engine's name of a model to serve; may be repeated. [default: all that it lists]")
@click.option("--credential-env", default="", metavar="VAR", help="The environment variable that holds the engine's bearer token.")
@click.option("--ca-file", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE", help="PEM of the authority that signed it.")
@click.option("--health-path", default="", metavar="PATH", help="Asked first. Exits 1 where it does not answer well, and says which path does.")
@click.option("--call", "calls", is_flag=True, help="Also make one or two calls of one token, to see whether streams report usage.")
@with_screen
@click.pass_context
def probe_(
    context: click.Context,
    url: str,
    name: str,
    models: tuple[str, ...],
    credential_env: str,
    ca_file: Path | None,
    health_path: str,
    calls: bool,
    screen: Screen,
) -> None:
    """Ask the server at URL what it is, and print a table for gateway.toml.

    URL is http://HOST:PORT or https://HOST:PORT. Nothing is generated without --call, no redirect is followed, and it takes 30 seconds at most. The output
    is TOML as a whole; what is worth knowing stands in its comments.
    """
    from gateway.upstream.probe import probe  # here, not above: no other command waits for its HTTP client

    wanted = Wanted(
        name=name,
        address=_address(url),
        models=models,
        credential_env=credential_env,
        ca_file=str(_file(ca_file)) if ca_file is not None else "",
        health_path=_path(health_path),
    )
    try:
        found = asyncio.run(probe(wanted.address, credential=_credential(credential_env), ca_file=wanted.ca_file or None, health_path=health_path, calls=calls))
    except EngineFailure as failure:
        raise _unreachable(wanted, failure) from failure
    _check(wanted, found)
    text = toml(wanted, found)
    settings_from_text(text, "gateway.toml")
    screen.present(_document(wanted, found, text), Line(text.rstrip("\n")))
    if health_line(wanted, found):
        context.exit(Exit.NOT_SO)


def _address(url: str) -> str:
    try:
        return UpstreamSettings(address=url, models={"x": "x"}).address
    except ValidationError as error:
        cause = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise Problem(f"{url!r} can't be probed", cause, "for example: gateway upstream probe http://127.0.0.1:8081") from error


def _path(health_path: str) -> str:
    if health_path and not health_path.startswith("/"):
        raise Problem(f"--health-path {health_path!r} is no path", "a path begins with /", f"write /{health_path}")
    return health_path


def _file(ca_file: Path) -> Path:
    if not ca_file.is_file():
        raise Problem(f"{ca_file} is no file", "--ca-file names the PEM file of a certificate authority", "name the file, or leave --ca-file out")
    return ca_file.absolute()


def _credential(variable: str) -> str | None:
    if not variable:
        return None
    value = os.environ.get(variable, "").strip()
    if wrong := wrong_with_secret(variable, value):
        raise Problem(wrong, "--credential-env names a variable, not the secret itself", f"export {variable}=…")
    return value


def _unreachable(wanted: Wanted, failure: EngineFailure) -> Problem:
    mend = "start the engine, or correct host and port"
    if "Certificate" in str(failure) or "SSL" in str(failure):
        mend = "name the authority that signed it with --ca-file, or write http:// where the server speaks no TLS"
    elif failure.kind in ("died", "closed"):
        mend = "write https:// where the server speaks TLS, or correct the port: what answers there speaks no HTTP"
    elif failure.kind == "timeout":
        mend = "look whether a firewall stands between, or whether the server is overloaded; then ask again"
    return Problem(f"{wanted.address} does not answer", str(failure), mend, exit_code=Exit.UNREACHABLE, code=FAILED)


def _check(wanted: Wanted, found: Probed) -> None:
    status = found.listing.status
    if found.shut:
        cause = f"{found.shut[0]} wants {'another credential' if wanted.credential_env else 'a credential'}"
        mend = "put the right token in an environment variable and name it: --credential-env VAR"
        raise Problem(f"{wanted.address} lets nobody in", cause, mend, exit_code=Exit.REFUSED, code="upstream_auth")
    if status >= 500:
        cause = f"/v1/models answers {status}{_said(found)}"
        raise Problem(f"{wanted.address} is not ready", cause, "wait until its model is loaded, then ask again", exit_code=Exit.UNREACHABLE, code=FAILED)
    if 300 <= status < 400:
        target = found.listing.headers.get("location", "elsewhere")
        mend = "name the address of the engine itself: the gateway follows no redirects"
        raise Problem(
            f"{wanted.address} is not the engine", f"/v1/models answers {status}, a redirect to {target}", mend, exit_code=Exit.REFUSED, code="redirect"
        )
    if not models_of(wanted, found):
        cause = f"/v1/models answers {status} and names none" if not found.listing.good else "/v1/models names none"
        mend = "load a model there, name one with --model, or correct host and port if this is no model server"
        raise Problem(f"{wanted.address} lists no model", cause, mend, exit_code=Exit.REFUSED, code="no_models")


def _said(found: Probed) -> str:
    error = found.listing.value.get("error") if isinstance(found.listing.value, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return f": {message[:200]}" if isinstance(message, str) else ""


def _document(wanted: Wanted, found: Probed, text: str) -> dict[str, Any]:
    return {
        "name": name_of(wanted, found),
        "address": wanted.address,
        "engine": found.recognised.product.kind,
        "product": found.recognised.product.name,
        "version": found.recognised.version or None,
        "evidence": found.recognised.evidence,
        "models": models_of(wanted, found),
        "context_tokens": found.context_tokens,
        "slots": found.slots,
        "health_path": found.health_path or None,
        "health_paths": {path: said.status or None for path, said in found.health.items()},
        "health_problem": health_line(wanted, found) or None,
        "tokenizer": found.tokenizer or None,
        "counts_chat": found.counts_chat,
        "counts_messages": found.counts_messages,
        "counts": sorted(found.engine.counts),
        "salts_prompt_cache": bool(found.engine.salt_field),
        "streams_report_usage": found.streams or None,
        "tried": found.tried,
        "distrust": list(found.engine.distrust),
        "facts": list(facts(wanted, found)),
        "toml": text,
    }
