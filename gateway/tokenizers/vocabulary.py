"""The vocabularies that lie in the package: how each splits a text, and its ranks, read and checked.

A file holds the tokens in the order of their ranks: one byte of length for each, then the tokens themselves; gzipped.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from dataclasses import dataclass
from importlib import resources
from typing import Final

from gateway.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    file: str
    tokens: int
    sha256: str
    """Of the unpacked file."""
    pattern: str
    """Where a text is split before anything is merged."""
    composes: bool = False
    """Texts are brought to NFC first."""


_LETTER_HEAD: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LETTER_TAIL: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CONTRACTION: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LINE_ENDS_AND_BLANKS: Final = (r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+")

VOCABULARIES: Final[dict[str, Vocabulary]] = {
    "o200k_base": Vocabulary(
        file="o200k_base.ranks.gz",
        tokens=199_998,
        sha256="440741350e7cfa1c0f4869ce742d1b043550adbda5187adcac9e787edac6fba9",
        pattern="|".join(
            (
                rf"[^\r\n\p{{L}}\p{{N}}]?{_LETTER_HEAD}*{_LETTER_TAIL}+{_CONTRACTION}?",
                rf"[^\r\n\p{{L}}\p{{N}}]?{_LETTER_HEAD}+{_LETTER_TAIL}*{_CONTRACTION}?",
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                *_LINE_ENDS_AND_BLANKS,
            )
        ),
    ),
    "cl100k_base": Vocabulary(
        file="cl100k_base.ranks.gz",
        tokens=100_256,
        sha256="18288f996f452d44e0e65996176591a4b712a3eb1b42afd6f0511e735c099480",
        pattern="|".join((_CONTRACTION, r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", *_LINE_ENDS_AND_BLANKS)),
    ),
    "qwen": Vocabulary(
        file="qwen.ranks.gz",
        tokens=151_643,
        sha256="caa0a2b90ec75a6bbfdad77a3fe4e690869507f8bf08b4cf81877d4c7297fc0e",
        pattern="|".join((_CONTRACTION, r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", *_LINE_ENDS_AND_BLANKS)),
        composes=True,
    ),
    "qwen3_6": Vocabulary(
        file="qwen3_6.ranks.gz",
        tokens=248_044,
        sha256="a468e5318e8d5bd82a34d45570c8810986617abd9d43050f717f2c4c23db3de0",
        pattern="|".join((_CONTRACTION, r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", *_LINE_ENDS_AND_BLANKS)),
        composes=True,
    ),
}


def packed_ranks(vocabulary: Vocabulary) -> bytes:
    return resources.files("gateway.tokenizers.vocabularies").joinpath(vocabulary.file).read_bytes()


def read_ranks(vocabulary: Vocabulary, packed: bytes) -> dict[bytes, int]:
    """Raises ConfigurationError where the file is not the one that was shipped."""
    try:
        raw = gzip.decompress(packed)
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(f"vocabulary {vocabulary.file} can't be unpacked: {error}; install the package again") from error
    digest = hashlib.sha256(raw).hexdigest()
    if digest != vocabulary.sha256:
        raise ConfigurationError(f"vocabulary {vocabulary.file} has SHA-256 {digest}, not {vocabulary.sha256}; install the package again")
    ranks: dict[bytes, int] = {}
    start = vocabulary.tokens
    for rank, length in enumerate(raw[: vocabulary.tokens]):
        ranks[raw[start : start + length]] = rank
        start += length
    return ranks
