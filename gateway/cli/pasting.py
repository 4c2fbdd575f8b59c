"""What an agent needs, ready to paste into a shell."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping

from gateway.cli.exits import Exit
from gateway.cli.problems import Problem
from gateway.client.control import ControlClient
from gateway.client.driver import base_url


def exports(address: str, keys: Mapping[str, str]) -> list[str]:
    """A comment and an `export` line for each lane; where agents come in by a Unix socket alone, first which."""
    url = shlex.quote(base_url(address))
    by = [f"# by the Unix socket {address.removeprefix('unix:')}"] if address.startswith("unix:") else []
    return by + [line for lane, secret in keys.items() for line in (f"# lane {lane}", f"export OPENAI_BASE_URL={url} OPENAI_API_KEY={shlex.quote(secret)}")]


def data_address(control: ControlClient) -> str:
    """Where agents come in, as the gateway itself says. Asked before a key is issued: a key that could not be printed would be lost."""
    address = str(control.status().get("data_address", ""))
    if not address:
        raise Problem(
            "the gateway does not say where agents come in",
            "its data listener is not up",
            "look into its log, then ask again; nothing was changed",
            exit_code=Exit.REFUSED,
            code="not_ready",
        )
    return address


def called_as() -> str:
    """How a shell calls this program again: by its name where it finds it, else as it was called now (`make run` puts nothing on the PATH)."""
    if shutil.which("gateway"):
        return "gateway"
    return shlex.quote(sys.argv[0]) if not sys.argv[0].endswith(".py") else f"{shlex.quote(sys.executable)} -m gateway"
