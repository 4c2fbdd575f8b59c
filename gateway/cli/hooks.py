"""Commands whose work is done by a side room. The room is loaded when its command is called: `gateway usage` must not wait for an engine's libraries."""

from __future__ import annotations

import importlib

from gateway.cli.problems import Problem


def run_hook(module: str, **arguments: object) -> int:
    """Calls `main(**arguments)` of the module; what it returns is the exit code, None is 0."""
    try:
        hook = importlib.import_module(module).main
    except ModuleNotFoundError as error:
        raise Problem(
            "this command needs a package that is not installed", str(error), "install model-gateway[demo], or `make run` in a clone", code="not_installed"
        ) from error
    result = hook(**arguments)
    return result if isinstance(result, int) else 0
