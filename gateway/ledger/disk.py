"""Whether the ledger's disk has room left: asked at most once a second, because every admission asks."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gateway.errors import LedgerUnavailable

LOOK_EVERY_S = 1.0


class FreeSpace:
    def __init__(self, path: Path, min_free_bytes: int) -> None:
        self._folder = path.resolve().parent
        self._min_free_bytes = min_free_bytes
        self._looked_at_s = float("-inf")
        self._free_bytes = 0

    def check(self) -> None:
        """Raises LedgerUnavailable."""
        if not self._min_free_bytes:
            return
        now_s = time.monotonic()
        if now_s - self._looked_at_s >= LOOK_EVERY_S:
            try:
                found = os.statvfs(self._folder)
            except OSError as error:
                raise LedgerUnavailable(f"{self._folder}: {error.strerror}") from error
            self._free_bytes, self._looked_at_s = found.f_bavail * found.f_frsize, now_s
        if self._free_bytes < self._min_free_bytes:
            raise LedgerUnavailable(f"{self._folder} has {self._free_bytes} bytes free, less than min_free_bytes = {self._min_free_bytes}")
