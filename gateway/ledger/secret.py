"""A secret of the ledger's own, `PATH.secret` beside it: made once, of the owner's alone, the same after a restart.

In a file of its own, so that a copy of the ledger for somebody else does not hold it. Without it a new one is made: salts made of it change, nothing else.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from gateway.errors import ConfigurationError

BYTES: Final = 32


def kept_secret(ledger: Path) -> bytes:
    """To be asked for under the ledger's lock. Raises ConfigurationError where the file can't be read, can't be made, or holds something else."""
    real = ledger.resolve()
    path = real.with_name(real.name + ".secret")
    try:
        found = path.read_bytes() if path.exists() else _made(path)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}; it must be a file that this user can read and write") from error
    if len(found) != BYTES:
        raise ConfigurationError(f"{path} is damaged: it holds {len(found)} bytes, not {BYTES}; remove it, and a new one is made (prompt caches begin anew)")
    return found


def _made(path: Path) -> bytes:
    """Whole or not at all: written beside it, then renamed."""
    secret = secrets.token_bytes(BYTES)
    beside = path.with_name(path.name + ".new")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, 0o600)
        file.write(secret)
        file.flush()
        os.fsync(handle)
    beside.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return secret
