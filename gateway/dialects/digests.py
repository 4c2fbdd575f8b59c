"""SHA-256 of texts that begin alike, and of a text's beginnings: what was hashed once is not hashed again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

Bytes = bytes | memoryview


class Hash(Protocol):
    def update(self, data: Bytes, /) -> None: ...
    def copy(self) -> Hash: ...
    def digest(self) -> bytes: ...
    def hexdigest(self) -> str: ...


class Beginnings:
    """Of one text, in one pass where they are asked for by length; what was asked for before is remembered."""

    def __init__(self, text: memoryview) -> None:
        self._text = text
        self._hash: Hash = hashlib.sha256()
        self._at = 0
        self.known: dict[int, str] = {}
        """Length -> digest."""

    def skip(self, end: int, digest: str, behind: Hash) -> None:
        """The beginning up to here was hashed before: `behind` is the hash behind it."""
        self._hash, self._at = behind.copy(), end
        self.known[end] = digest

    def ends_item(self, at: int) -> bool:
        """What stands here ends an item of a list."""
        return at < len(self._text) and self._text[at] in b",]"

    def sha256(self, end: int) -> str:
        if end not in self.known:
            self._go(end)
            self.known[end] = self._hash.hexdigest()
        return self.known[end]

    def behind(self, end: int) -> Hash:
        """The hash behind the beginning up to here."""
        self._go(end)
        return self._hash.copy()

    def _go(self, end: int) -> None:
        if end < self._at:
            self._hash, self._at = hashlib.sha256(), 0
        self._hash.update(self._text[self._at : end])
        self._at = end


class Continued:
    """Of texts that hold the same middle, of which a first part may have been hashed behind the same head before."""

    def __init__(self, before: Mapping[bytes, Hash], old: Callable[[], Bytes], new: Iterable[Bytes]) -> None:
        """`before`: digest of a head -> the hash behind it and `old`. The middle is `old` and all of `new`."""
        self._before = before
        self._old = old
        self._new = tuple(new)
        self.behind: dict[bytes, Hash] = {}
        """Digest of a head -> the hash behind it and the middle."""

    def sha256(self, head: Bytes, tail: Bytes) -> str:
        running: Hash = hashlib.sha256(head)
        key = running.digest()
        if key not in self.behind:
            if key in self._before:
                running = self._before[key].copy()
            else:
                running.update(self._old())
            for piece in self._new:
                running.update(piece)
            self.behind[key] = running
        running = self.behind[key].copy()
        running.update(tail)
        return running.hexdigest()
