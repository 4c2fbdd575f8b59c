"""Looks at the machine, and at a gateway that runs on these settings: disk, files, clock, rights. Read-only, without the ledger's lock."""

from __future__ import annotations

import os
import re
import resource
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from gateway.client.control import ControlClient, ControlError
from gateway.doctor.networks import networks_of
from gateway.doctor.seen import Folder, MachineSeen, Running
from gateway.errors import GatewayError
from gateway.ledger.clock import system_ms
from gateway.ledger.connect import ledger_path
from gateway.ledger.reading import LedgerReader
from gateway.settings.settings import Settings

ANSWER_S = 3.0
"""Of a gateway that runs, to each question."""
_ROUTES = Path("/proc/net/route")


def look_at_machine(settings: Settings, system_ms: Callable[[], int] = system_ms) -> MachineSeen:
    path = ledger_path(settings.ledger.path)
    last, problem = _last_entry(path)
    running = _running(settings.control.socket, path)
    files, files_of = _files(running)
    return MachineSeen(
        user=_user(),
        ledger=_folder(path.resolve().parent),
        socket=_folder(settings.control.socket.parent),
        free_bytes=_free_bytes(path),
        files=files,
        files_of=files_of,
        modes=_modes(settings, path),
        last_entry_ms=last,
        ledger_problem=problem,
        system_ms=system_ms(),
        running=running,
        networks=networks_of(_ROUTES.read_text()) if _ROUTES.exists() else (),
    )


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _nearest(folder: Path) -> Path:
    return next(one for one in (folder, *folder.parents) if one.exists())


def _folder(folder: Path) -> Folder:
    folder = folder.absolute()
    there = _nearest(folder)
    writable = os.access(there, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)
    mode = there.stat().st_mode
    others = bool(mode & 0o022) and not mode & stat.S_ISVTX and there == folder
    return Folder(path=folder, exists=there == folder, writable=writable, open_to_others=others)


def _free_bytes(ledger: Path) -> int | None:
    try:
        found = os.statvfs(_nearest(ledger.resolve().parent))
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _modes(settings: Settings, ledger: Path) -> dict[Path, int]:
    real = ledger.resolve()
    secret = [real, real.with_name(real.name + ".secret"), settings.data.tls_key, settings.control.tls_key]
    found = {}
    for path in secret:
        try:
            if path is not None:
                found[path] = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
    return found


def _last_entry(path: Path) -> tuple[int | None, str]:
    try:
        if not path.exists():
            return None, ""
        with LedgerReader(path) as reader:
            rows = reader.query("SELECT at_ms FROM journal ORDER BY number DESC LIMIT 1")
    except (GatewayError, OSError) as error:
        return None, str(error)
    return (int(str(rows[0]["at_ms"])) if rows else None), ""


def _running(control: Path, ledger: Path) -> Running | None:
    """None where nobody listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
        tried.settimeout(ANSWER_S)
        try:
            tried.connect(str(control))
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            return None
        except OSError as error:
            return Running(mute=f"{control}: {error.strerror or error}")
    try:
        clock = ControlClient(control, answer_s=ANSWER_S).clock()
    except ControlError as error:
        return Running(mute=f"{control}: {error.cause or error.problem}")
    return Running(clock=clock, process=_holder(ledger))


def _holder(ledger: Path) -> int | None:
    real = ledger.resolve()
    try:
        said = real.with_name(real.name + ".lock").read_text()
    except OSError:
        return None
    found = re.match(r"process (\d+) on (\S+),", said)
    return int(found[1]) if found and found[2] == socket.gethostname() else None


def _files(running: Running | None) -> tuple[int, str]:
    if running is not None and running.process is not None:
        try:
            limits = Path(f"/proc/{running.process}/limits").read_text()
        except OSError:
            limits = ""
        if found := re.search(r"^Max open files\s+(\d+)", limits, re.MULTILINE):
            return int(found[1]), "the gateway that runs"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return (1 << 30 if hard == resource.RLIM_INFINITY else hard), "a gateway started from here"
