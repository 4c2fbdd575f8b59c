"""One process serves one ledger: an advisory lock on `PATH.lock`, which says who holds it. The kernel gives it back when the process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from gateway.errors import LedgerLocked, LedgerUnavailable


class LedgerLock:
    """Held from the moment it is made until `release`."""

    def __init__(self, path: Path) -> None:
        """Raises LedgerLocked, which names the holder; LedgerUnavailable where the folder can't be written, or one lock would not do."""
        real = path.resolve()  # one file, one lock, by whatever name it is called
        if real.is_file() and (names := real.stat().st_nlink) > 1:
            raise LedgerUnavailable(f"{path} has {names} names (hard links): under another one a second gateway could write it too; remove the others")
        self.ledger = real
        self.path = real.with_name(real.name + ".lock")
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerUnavailable(f"{self.path}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._file, 500, 0).decode("utf-8", "replace").strip()
            os.close(self._file)
            raise LedgerLocked(f"{path} is served by {holder or 'another process'}") from error
        started = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"process {os.getpid()} on {socket.gethostname()}, since {started}\n".encode(), 0)

    def release(self) -> None:
        """The file stays: removing it would let two processes hold two locks of one name."""
        os.ftruncate(self._file, 0)
        os.close(self._file)
