"""Judges what was seen of the machine and of a gateway that runs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gateway.doctor.line import Line, fail, ok, warn
from gateway.doctor.seen import Folder, MachineSeen
from gateway.ledger.clock import DRIFT_MAX_MS
from gateway.settings.open_files import files_needed
from gateway.settings.settings import Settings

ABOUT = "machine"
MIB = 1 << 20
LITTLE_LEFT = 2
"""So many times min_free_bytes is soon too little."""


def machine_lines(settings: Settings, seen: MachineSeen) -> Iterator[Line]:
    yield _gateway(seen)
    yield _clock(seen)
    yield _disk(settings, seen)
    yield _files(settings, seen)
    yield _folder("ledger", seen.ledger, seen.user, "ledger.path")
    yield _socket(seen)
    yield _secrets(seen)


def token_line(settings: Settings, environment: Mapping[str, str], shortest: int) -> Line | None:
    """None where the control plane takes no token."""
    variable = settings.control.token_env
    if variable is None:
        return None
    token = environment.get(variable, "").strip()
    if len(token) >= shortest:
        return ok("token", ABOUT, f"{variable} holds a token")
    said = "is not set" if not token else f"holds {len(token)} characters"
    return fail("token", ABOUT, f"the environment variable {variable} {said}", f"let it hold {shortest} or more, e.g. of `openssl rand -hex 32`")


def _gateway(seen: MachineSeen) -> Line:
    running = seen.running
    if running is None:
        return ok("gateway", ABOUT, "none runs on these settings")
    if running.mute:
        return warn("gateway", ABOUT, f"one runs, and tells nothing: {running.mute}", "ask as the user that it runs as")
    return ok("gateway", ABOUT, f"one runs{f' as process {running.process}' if running.process else ''}; it was asked for nothing but its clock")


def _clock(seen: MachineSeen) -> Line:
    mend = "set the clock right (chronyc tracking, timedatectl); where the ledger's is wrong: gateway ledger clock --accept"
    if seen.ledger_problem:
        return fail("clock", ABOUT, f"the ledger can't be read: {seen.ledger_problem}", "name the right file in ledger.path, or mend the disk")
    clock = seen.running.clock if seen.running is not None else {}
    if clock.get("doubt"):
        return fail("clock", ABOUT, f"the gateway that runs admits nothing: {clock['doubt']}", mend)
    if seen.last_entry_ms is None:
        return ok("clock", ABOUT, "there is no entry yet to hold it against")
    behind = seen.last_entry_ms - seen.system_ms
    if behind > DRIFT_MAX_MS or (behind > 0 and not clock):
        return fail("clock", ABOUT, f"the system's clock stands {behind / 1000:.0f} s behind the ledger's last entry: nothing would be admitted", mend)
    drift = clock.get("drift_ms")
    if isinstance(drift, int) and abs(drift) > DRIFT_MAX_MS // 5:
        return warn("clock", ABOUT, f"the system's clock is {drift / 1000:.0f} s {'ahead of' if drift > 0 else 'behind'} the running ledger's", mend)
    return ok("clock", ABOUT, "not behind the ledger's last entry" + (f", and {abs(drift)} ms off the running ledger's" if isinstance(drift, int) else ""))


def _disk(settings: Settings, seen: MachineSeen) -> Line:
    least, free = settings.ledger.min_free_bytes, seen.free_bytes
    if free is None:
        return fail("disk", ABOUT, f"how much is free at {seen.ledger.path} can't be told", "name a folder on a mounted disk in ledger.path")
    found = f"{free // MIB} MiB free at {seen.ledger.path}, min_free_bytes is {least // MIB} MiB"
    if free < least:
        return fail("disk", ABOUT, f"{found}: nothing would be forwarded", "make room, or move the ledger to another disk")
    if free < LITTLE_LEFT * least:
        return warn("disk", ABOUT, found, "make room soon: below min_free_bytes nothing is forwarded")
    return ok("disk", ABOUT, found)


def _files(settings: Settings, seen: MachineSeen) -> Line:
    needed = files_needed(settings.table)
    if seen.files >= needed:
        return ok("files", ABOUT, f"{seen.files_of} may open {min(seen.files, 1 << 30)} files, and needs {needed} at most")
    return fail(
        "files",
        ABOUT,
        f"{seen.files_of} may open {seen.files} files; {settings.bounds.max_connections} connections and the engines' slots need {needed}",
        "raise it (systemd: LimitNOFILE, a shell: ulimit -Hn, a container: --ulimit nofile), or lower bounds.max_connections",
    )


def _folder(check: str, folder: Folder, user: str, named: str) -> Line:
    check = f"permissions.{check}"
    if not folder.writable:
        there = "can't be written to" if folder.exists else "is not there and can't be made"
        return fail(check, ABOUT, f"{folder.path} {there} by {user}", f"give it to that user, mount it writable, or name another in {named}")
    return ok(check, ABOUT, f"{folder.path} can be written to by {user}" if folder.exists else f"{folder.path} can be made by {user}")


def _socket(seen: MachineSeen) -> Line:
    if seen.socket.open_to_others:
        return fail("permissions.socket", ABOUT, f"others may write in {seen.socket.path} and replace the control socket", f"chmod 0700 {seen.socket.path}")
    return _folder("socket", seen.socket, seen.user, "control.socket")


def _secrets(seen: MachineSeen) -> Line:
    open_ = {path: mode for path, mode in seen.modes.items() if mode & (0o077 if path.suffix != ".ledger" else 0o022)}
    if not open_:
        return ok("permissions.secrets", ABOUT, f"what only {seen.user} should read, others can't" if seen.modes else "there is no secret file yet")
    named = ", ".join(f"{path} (mode {mode:04o})" for path, mode in open_.items())
    return fail("permissions.secrets", ABOUT, f"others can read or change {named}", f"chmod 0600 {' '.join(str(path) for path in open_)}")
