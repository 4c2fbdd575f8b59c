"""The mock engine as a command: serves until SIGTERM or SIGINT, and says where on one line."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import orjson
import uvloop

from gateway.errors import ConfigurationError
from gateway.mock_engine.script import Playbook, parse_playbook
from gateway.mock_engine.server import MockEngine


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    log: Path | None = None,
    script: Path | None = None,
    slots: int | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Prints `ready engine=http://HOST:PORT` (or gives it to `say`) once it listens. Raises ConfigurationError for a script that can't be used."""
    playbook = read_script(script) if script else Playbook()
    if slots is not None:
        playbook.slots = slots
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(MockEngine(playbook, host=host, port=port, log=log), say or _print))


def main(*, listen: str, script: Path | None, log: Path | None, as_json: bool) -> int:
    """What `gateway mock-engine` calls. Returns the exit code."""
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(f"--listen {listen}: write HOST:PORT, e.g. 127.0.0.1:8090 (port 0 takes a free one)")
    if log is not None and not log.absolute().parent.is_dir():
        raise ConfigurationError(f"--log {log}: there is no folder {log.absolute().parent}")
    try:
        serve(host=host.strip("[]"), port=int(port), log=log, script=script, say=_print_json if as_json else None)
    except OSError as error:
        raise ConfigurationError(f"the mock engine can't listen on {listen}: {error.strerror or error}") from error
    return 0


def read_script(path: Path) -> Playbook:
    """Raises ConfigurationError that names the file."""
    try:
        return parse_playbook(orjson.loads(path.read_bytes()))
    except (OSError, orjson.JSONDecodeError, ConfigurationError) as error:
        raise ConfigurationError(f"{path}: {error}") from error


async def _serve(engine: MockEngine, say: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with engine:
        say(f"ready engine={engine.url}")
        await stop.wait()


def _print(line: str) -> None:
    print(line, flush=True)


def _print_json(line: str) -> None:
    print(orjson.dumps({"ready": dict([line.removeprefix("ready ").split("=", 1)])}).decode(), flush=True)
