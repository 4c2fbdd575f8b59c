"""An answer as its agent got it, compressed as it goes by: a long stream is never held whole."""

from __future__ import annotations

import hashlib
import zlib
from typing import Final

from gateway.capture.store import LEVEL

PACKED_MAX: Final = 32 * 1024 * 1024
"""Of one answer: beyond it the answer is not kept."""


class AnswerTape:
    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._packer = zlib.compressobj(LEVEL, wbits=31)
        self._packed: list[bytes] = []
        self._size = 0

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return self._size

    def add(self, data: bytes | bytearray) -> None:
        self._hash.update(data)
        if self._size <= PACKED_MAX and (made := self._packer.compress(data)):
            self._packed.append(made)
            self._size += len(made)

    def done(self) -> tuple[str, bytes]:
        """SHA-256 in hex, and the gzip file; empty where it grew too long."""
        last = self._packer.flush()
        gzipped = b"" if self._size > PACKED_MAX else b"".join((*self._packed, last))
        return self._hash.hexdigest(), gzipped
