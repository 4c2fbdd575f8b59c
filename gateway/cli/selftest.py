"""`gateway selftest`: from inside a sandbox, what can be reached. The same as `python3 selftest.py` with the one file copied there."""

from __future__ import annotations

import click

from gateway.cli.exits import Exit
from gateway.cli.problems import Problem
from gateway.cli.screen import Line, Screen, with_screen
from gateway.cli.words import printable
from gateway.client import selftest as inside


@click.command()
@click.option("--gateway", "url", default="", metavar="URL", help="http://HOST:PORT where agents come in.")
@click.option("--socket", default="", metavar="PATH", help="The Unix socket where agents come in, in place of --gateway.")
@click.option("--key", default="", envvar="GATEWAY_KEY", show_envvar=True, metavar="KEY", help="A key of a run.")
@click.option("--engine", "engines", multiple=True, metavar="HOST:PORT", help="An engine, which must not be reached; may be repeated.")
@click.option("--outside", multiple=True, metavar="HOST:PORT", help="Any other address that must not be reached; may be repeated.")
@click.option("--allow", multiple=True, metavar="WHAT", help="HOST:PORT or socket path that is the sandbox's own; may be repeated.")
@click.option("--ca-file", default="", metavar="FILE", help="PEM of the authority that signed an https gateway.")
@click.option("--scan", is_flag=True, help="Try every port of the gateway's host.")
@with_screen
@click.pass_context
def selftest(
    context: click.Context,
    url: str,
    socket: str,
    key: str,
    engines: tuple[str, ...],
    outside: tuple[str, ...],
    allow: tuple[str, ...],
    ca_file: str,
    scan: bool,
    screen: Screen,
) -> None:
    """Try from here, inside a sandbox, what can be reached. Exits 1 if it is anything but the gateway.

    Tried are the gateway, the control plane's paths there, ports of its host, engines and addresses that are named, name servers, the metadata address of
    clouds, local ports and local sockets. Where Python is all there is: copy gateway/client/selftest.py in and run that.
    """
    if bool(url) == bool(socket):
        raise Problem("one way in must be named", "--gateway and --socket exclude each other", "gateway selftest --gateway http://HOST:PORT, or --socket PATH")
    asked = inside.Asked(url, socket, key, engines, outside, allow, ca_file, scan)
    if wrong := inside.slip(asked):
        raise Problem(wrong, "what is not tried would pass for closed", "write HOST:PORT; of the gateway http://HOST:PORT or https://HOST:PORT")
    tried = inside.selftest(asked)
    screen.present(inside.document(tried), *(Line(printable(line)) for line in inside.written(tried)))
    if not inside.good(tried):
        context.exit(Exit.NOT_SO)
