"""tiktoken's encodings from vocabularies that lie in the package: no network, ever.

Safe on any text: encoded in pieces of at most 50,000 characters (a million blanks in a row overflow the regex stack, +0.006 % tokens on ordinary text), special
tokens' names are ordinary text, lone surrogates count as the replacement character's bytes would. In one thread of its own; loaded on first use (some 60 MB).
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from threading import Lock
from typing import Final

import tiktoken

from gateway.errors import ConfigurationError

PIECE_CHARACTERS: Final = 50_000
COUNTING_THREADS: Final = 1
"""Two cores: one goes on serving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    file: str
    sha256: str
    pattern: str
    special_tokens: dict[str, int]


_LETTER_HEAD: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LETTER_TAIL: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CONTRACTION: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

VOCABULARIES: Final[dict[str, Vocabulary]] = {
    "o200k_base": Vocabulary(
        file="o200k_base.tiktoken.gz",
        sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        pattern="|".join(
            (
                r"[^\r\n\p{L}\p{N}]?" + _LETTER_HEAD + "*" + _LETTER_TAIL + "+" + _CONTRACTION,
                r"[^\r\n\p{L}\p{N}]?" + _LETTER_HEAD + "+" + _LETTER_TAIL + "*" + _CONTRACTION,
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            )
        ),
        special_tokens={"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018},
    )
}


def read_ranks(vocabulary: Vocabulary, packed: bytes) -> dict[bytes, int]:
    """Raises ConfigurationError where the file is not the one that was shipped."""
    try:
        raw = gzip.decompress(packed)
    except (OSError, EOFError) as error:
        raise ConfigurationError(f"vocabulary {vocabulary.file} can't be unpacked: {error}; install the package again") from error
    digest = hashlib.sha256(raw).hexdigest()
    if digest != vocabulary.sha256:
        raise ConfigurationError(f"vocabulary {vocabulary.file} has SHA-256 {digest}, not {vocabulary.sha256}; install the package again")
    return {base64.b64decode(token): int(rank) for token, _, rank in (line.partition(b" ") for line in raw.split(b"\n") if line)}


def pieces(text: str) -> Sequence[str]:
    if len(text) <= PIECE_CHARACTERS:
        return (text,)
    return [text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS)]


class BpeTokenizer:
    """One encoding. Cheap until the first count."""

    def __init__(self, encoding: str) -> None:
        vocabulary = VOCABULARIES.get(encoding)
        if vocabulary is None:
            raise ConfigurationError(f"no vocabulary {encoding!r} is shipped; there is {', '.join(sorted(VOCABULARIES))}")
        self.name = f"tiktoken:{encoding}"
        self._encoding_name = encoding
        self._vocabulary = vocabulary
        self._encoding: tiktoken.Encoding | None = None
        self._lock = Lock()
        self._threads = ThreadPoolExecutor(COUNTING_THREADS, thread_name_prefix="counting")

    async def count(self, parts: Sequence[str]) -> int:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.count_now, tuple(parts))

    def count_now(self, parts: Sequence[str]) -> int:
        """In the caller's thread. Each part is counted by itself."""
        encoding = self._loaded()
        return sum(len(encoding.encode(piece, disallowed_special=())) for part in parts for piece in pieces(part) if piece)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _loaded(self) -> tiktoken.Encoding:
        with self._lock:
            if self._encoding is None:
                packed = resources.files("gateway.tokenizers.vocabularies").joinpath(self._vocabulary.file).read_bytes()
                self._encoding = tiktoken.Encoding(
                    name=self._encoding_name,
                    pat_str=self._vocabulary.pattern,
                    mergeable_ranks=read_ranks(self._vocabulary, packed),
                    special_tokens=self._vocabulary.special_tokens,
                )
            return self._encoding
