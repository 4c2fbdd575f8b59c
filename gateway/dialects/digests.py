"""SHA-256 of texts that begin alike, and of a text's beginnings: what was hashed once is not hashed again."""

from __future__ import annotations

import hashlib


class Beginnings:
    """Of one text; each asked for must be no shorter than the one before."""

    def __init__(self, text: memoryview) -> None:
        self._text = text
        self._hash = hashlib.sha256()
        self._at = 0

    def __len__(self) -> int:
        return len(self._text)

    def ends_value(self, at: int) -> bool:
        """What stands at this place ends an item of a list."""
        return at < len(self._text) and self._text[at] in b",]"

    def sha256(self, end: int) -> str:
        self._hash.update(self._text[self._at : end])
        self._at = end
        return self._hash.hexdigest()


def of_both(one: bytes, other: bytes, shared: int) -> tuple[str, str]:
    """`shared`: so many first bytes of both are the same."""
    if one == other:
        digest = hashlib.sha256(one).hexdigest()
        return digest, digest
    first = hashlib.sha256(memoryview(one)[:shared])
    second = first.copy()
    first.update(memoryview(one)[shared:])
    second.update(memoryview(other)[shared:])
    return first.hexdigest(), second.hexdigest()
