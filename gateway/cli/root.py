"""The command `gateway`: its groups, and the one place where a failure becomes three lines and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from gateway import __version__
from gateway.cli.budget import budget
from gateway.cli.campaign import campaign
from gateway.cli.capture import capture
from gateway.cli.correct import correct
from gateway.cli.demo import demo
from gateway.cli.doctor import doctor
from gateway.cli.exec import exec_
from gateway.cli.exits import Exit, epilog
from gateway.cli.explain import explain
from gateway.cli.export import export
from gateway.cli.key import key
from gateway.cli.ledger import ledger
from gateway.cli.mock_engine import mock_engine
from gateway.cli.page import page
from gateway.cli.policy import policy
from gateway.cli.preflight import preflight
from gateway.cli.problems import Problem, from_control_error, from_gateway_error, from_usage, say
from gateway.cli.receipt import receipt
from gateway.cli.reconcile import reconcile
from gateway.cli.report import compare, report
from gateway.cli.run import run
from gateway.cli.selftest import selftest
from gateway.cli.serve import serve
from gateway.cli.up import up
from gateway.cli.upstream import upstream
from gateway.cli.usage import usage
from gateway.cli.version import version
from gateway.client.control import ControlError
from gateway.errors import GatewayError, LedgerUnavailable


class _ReaderGone(Exception):
    """Whoever read our output has closed it."""


class Root(click.Group):
    """A group that ends the process with a documented code and never shows a traceback for a mistake of the user's."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *rest: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        code = self._run(arguments, prog_name or "gateway", **extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def _run(self, arguments: list[str], prog_name: str, **extra: Any) -> int:
        as_json = "--json" in arguments
        try:
            result = super().main(arguments, prog_name, standalone_mode=False, **extra)
            return result if isinstance(result, int) else Exit.OK
        except Problem as problem:
            return _failed(problem, as_json)
        except click.Abort:
            return Exit.INTERRUPTED
        except click.ClickException as error:
            return _failed(from_usage(error), as_json)
        except ControlError as error:
            return _failed(from_control_error(error), as_json)
        except GatewayError as error:
            return _failed(from_gateway_error(error), as_json)
        except _ReaderGone:
            # What is still buffered has nobody to go to: else Python complains at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return Exit.PIPE_CLOSED
        except Exception as error:
            if type(error).__module__ != "sqlite3":  # not loaded for what needs no ledger
                raise
            return _failed(from_gateway_error(LedgerUnavailable(str(error))), as_json)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderGone from error  # click would end with 1, which says that something is not so


def _failed(problem: Problem, as_json: bool) -> int:
    say(problem, as_json=as_json)
    return problem.exit_code


@click.group(cls=Root, epilog=epilog(), context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, message="gateway %(version)s")
def root() -> None:
    """The metered way from sandboxed agents to a model server of your own.

    Commands that speak to the running gateway find its control socket by --socket, by --config, by GATEWAY_SOCKET, by ./gateway.toml, or at its usual place.
    Those that open a ledger's file find it by --ledger, by --config, by what the running gateway says, by ./gateway.toml, or at its usual place.
    """


SERVING = (serve, up, demo, doctor, selftest, policy, upstream, mock_engine, version)
DRIVING = (campaign, run, preflight, explain, correct, exec_, key)
READING = (page, usage, receipt, reconcile, report, compare, export, capture, ledger)
for _command in (*SERVING, *DRIVING, *READING):
    root.add_command(_command)
run.add_command(budget)
