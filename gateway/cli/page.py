"""`gateway page`: the status page in a browser on this machine.

The rule: a browser can neither open a Unix socket nor present a token, so this carries its questions there, from a loopback port and behind a path that
nobody can guess. It carries GET and nothing else: whoever learns the address may look, and can change nothing.
"""

from __future__ import annotations

import hmac
import secrets
import signal
import sys
import threading
import webbrowser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import click

from gateway.cli.problems import Problem
from gateway.cli.reaching import Reach, with_gateway
from gateway.cli.screen import Line, Screen, with_screen
from gateway.client.control import ControlClient, ControlError

HOST: Final = "127.0.0.1"
IDLE_S: Final = 30.0
"""How long a browser may take to say what it wants."""
PASSED: Final = (
    "Content-Type",
    "Content-Security-Policy",
    "X-Content-Type-Options",
    "Referrer-Policy",
    "Cross-Origin-Opener-Policy",
    "Cross-Origin-Resource-Policy",
    "Cache-Control",
)


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="Where the browser finds it, on 127.0.0.1 alone. [default: a free one]")
@click.option("--open", "open_it", is_flag=True, help="Also open it in the browser.")
@with_gateway
@with_screen
def page(port: int, open_it: bool, reach: Reach, screen: Screen) -> None:
    """Show the status page to a browser on this machine, until Ctrl-C.

    Prints the address. Whoever has it may look; nothing can be changed through it.
    """
    control = reach.control()
    control.clock()  # where no gateway answers, that is told at once
    with forwarder(control, port) as server:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
        screen.present({"page": server.address}, Line(server.address))
        sys.stdout.flush()  # also where somebody reads it through a pipe, while this goes on
        if open_it:
            webbrowser.open(server.address)
        server.serve_forever()


class Forwarder(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, control: ControlClient, port: int) -> None:
        super().__init__((HOST, port), _Carried)
        self.control = control
        self.prefix = f"/{secrets.token_urlsafe(16)}"
        self.address = f"http://{HOST}:{self.server_address[1]}{self.prefix}/"


def forwarder(control: ControlClient, port: int = 0) -> Forwarder:
    try:
        return Forwarder(control, port)
    except OSError as error:
        raise Problem(f"Nothing can listen on {HOST}:{port}.", error.strerror or str(error), "name another --port", code="bad_port") from error


class _Carried(BaseHTTPRequestHandler):
    timeout = IDLE_S
    server: Forwarder

    def do_GET(self) -> None:
        prefix, slash, path = self.path[1:].partition("/")
        if not slash or not hmac.compare_digest(f"/{prefix}".encode(), self.server.prefix.encode()):
            self.send_error(404)
            return
        try:
            with self.server.control.stream(f"/{path}") as answer:
                self.send_response(answer.status)
                for name in PASSED:
                    if value := answer.getheader(name):
                        self.send_header(name, value)
                self.end_headers()
                while piece := answer.read1(65_536):
                    self.wfile.write(piece)
        except ControlError as error:
            self.send_error(502, explain=str(error))
        except OSError:
            self.close_connection = True  # the browser or the gateway has gone

    def log_message(self, format: str, *args: Any) -> None:
        """Its address is a secret: nothing is written of it."""
