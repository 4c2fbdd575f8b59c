"""Bodies as files: `PATH.bodies/ab/abcd….gz` beside the ledger. The name is the SHA-256 of the body, so nothing is kept twice and damage shows.

The ledger has the digests of requests; which answer was a call's is noted in `PATH.bodies/answers/`.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gateway.errors import GatewayError

LEVEL: Final = 6
BODY_MAX: Final = 256 * 1024 * 1024
"""What a kept body may unpack to: more than any that the gateway keeps; a file that says more was not made by it."""


class BodyDamaged(GatewayError):
    """A kept body is not what its name says. The text names the file."""


def bodies_folder(ledger: Path) -> Path:
    real = ledger.resolve()
    return real.with_name(real.name + ".bodies")


class BodyStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        return self.folder / digest[:2] / f"{digest}.gz"

    def has(self, digest: str) -> bool:
        return self.path(digest).is_file()

    def keep(self, digest: str, packed: bytes) -> int:
        """Whole or not at all. How many bytes were added: none where it was there. Raises OSError."""
        path = self.path(digest)
        if path.exists():
            return 0
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_name(f".{digest}.{os.getpid()}.part")
        try:
            part.touch(mode=0o600)
            part.write_bytes(packed)
            part.rename(path)
        finally:
            part.unlink(missing_ok=True)
        return len(packed)

    def name_answer(self, call_id: str, digest: str) -> None:
        """Which answer was this call's. Raises OSError."""
        path = self._answer_path(call_id)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(digest)

    def answer_of(self, call_id: str) -> str:
        """Its digest; empty where none was kept."""
        try:
            return self._answer_path(call_id).read_text()
        except FileNotFoundError:
            return ""

    def forget_answer(self, call_id: str) -> None:
        self._answer_path(call_id).unlink(missing_ok=True)

    def _answer_path(self, call_id: str) -> Path:
        return self.folder / "answers" / call_id[-2:] / call_id

    def read(self, digest: str) -> bytes:
        """Raises FileNotFoundError, BodyDamaged."""
        path = self.path(digest)
        try:
            unpacker = zlib.decompressobj(wbits=31)
            raw = unpacker.decompress(path.read_bytes(), BODY_MAX)
        except zlib.error as error:
            raise BodyDamaged(f"{path}: {error}") from error
        if hashlib.sha256(raw).hexdigest() != digest:
            raise BodyDamaged(f"{path} holds something else than its name says")
        return raw

    def digests(self) -> Iterator[tuple[str, int]]:
        """Each kept body with the bytes that its file takes."""
        for path in sorted(self.folder.glob("[0-9a-f][0-9a-f]/*.gz")):
            yield path.name.removesuffix(".gz"), path.stat().st_size

    def remove(self, digest: str) -> int:
        """How many bytes that gave back."""
        path = self.path(digest)
        size = path.stat().st_size
        path.unlink()
        return size


def packed(raw: bytes) -> bytes:
    """The same bytes each time: no time in the head."""
    return gzip.compress(raw, LEVEL, mtime=0)
