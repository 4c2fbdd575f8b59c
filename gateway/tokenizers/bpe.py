"""Byte pair encodings from vocabularies that lie in the package: no network, ever.

Safe on any text, in time that grows with its length: encoded in pieces of at most 50,000 characters (a million blanks in a row overflow the regex stack,
+0.006 % tokens on ordinary text), special tokens' names are ordinary text, lone surrogates count as the replacement character's bytes would. In one thread of
its own; loaded on first use (25 to 70 MB). Of a conversation that grows only what is new is encoded: each part is counted by itself, long pieces are
remembered by their digests.
"""

from __future__ import annotations

import asyncio
import hashlib
import unicodedata
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Final

import tiktoken

from gateway.errors import ConfigurationError
from gateway.tokenizers.vocabulary import VOCABULARIES, packed_ranks, read_ranks

PIECE_CHARACTERS: Final = 50_000
COMPOSED_CHARACTERS: Final = 1_000
"""Composing takes time by the square of a row of combining marks: 4 s for 50,000 of them."""
REMEMBERED_CHARACTERS: Final = 512
"""A shorter piece is encoded as fast as it is looked up."""
REMEMBERED_PIECES: Final = 20_000
COUNTING_THREADS: Final = 1
"""Two cores: one goes on serving."""


def pieces(text: str, most: int = PIECE_CHARACTERS) -> Sequence[str]:
    return (text,) if len(text) <= most else [text[start : start + most] for start in range(0, len(text), most)]


def composed(text: str) -> str:
    """In NFC, but for what stands over the border of two stretches."""
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return text
    return "".join(unicodedata.normalize("NFC", stretch) for stretch in pieces(text, COMPOSED_CHARACTERS))


class BpeTokenizer:
    """One encoding. Cheap until the first count."""

    def __init__(self, encoding: str) -> None:
        vocabulary = VOCABULARIES.get(encoding)
        if vocabulary is None:
            raise ConfigurationError(f"no vocabulary {encoding!r} is shipped; there is {', '.join(sorted(VOCABULARIES))}")
        self.name = f"tiktoken:{encoding}"
        self._vocabulary = vocabulary
        self._encoding: tiktoken.Encoding | None = None
        self._lock = Lock()
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self.characters_encoded = 0
        """All so far; less than was counted, by what was known."""
        self._threads = ThreadPoolExecutor(COUNTING_THREADS, thread_name_prefix="counting")

    async def count(self, parts: Sequence[str]) -> int:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.count_now, tuple(parts))

    def count_now(self, parts: Sequence[str]) -> int:
        """In the caller's thread. Each part is counted by itself."""
        return sum(self._known(piece) if len(piece) >= REMEMBERED_CHARACTERS else self._encoded(piece) for part in parts for piece in pieces(part))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _known(self, piece: str) -> int:
        digest = hashlib.blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        with self._lock:
            count = self._counts.get(digest)
        if count is None:
            count = self._encoded(piece)
        with self._lock:
            self._counts[digest] = count
            self._counts.move_to_end(digest)
            if len(self._counts) > REMEMBERED_PIECES:
                self._counts.popitem(last=False)
        return count

    def _encoded(self, piece: str) -> int:
        self.characters_encoded += len(piece)
        return len(self._loaded().encode(composed(piece) if self._vocabulary.composes else piece, disallowed_special=()))

    def _loaded(self) -> tiktoken.Encoding:
        with self._lock:
            if self._encoding is None:
                ranks = read_ranks(self._vocabulary, packed_ranks(self._vocabulary))
                self._encoding = tiktoken.Encoding(name=self.name, pat_str=self._vocabulary.pattern, mergeable_ranks=ranks, special_tokens={})
                self._encoding._mergeable_ranks = {}  # its core has its own copy: this one is a third of its memory and serves nothing that is used here
            return self._encoding
