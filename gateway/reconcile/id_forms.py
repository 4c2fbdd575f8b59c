"""What an id looks like, learnt from ids: its fixed words, and letters and length of the rest. Pure.

`chatcmpl-` and 32 letters and digits is a form; so is `msg_` and 24 hex digits. A form with few possibilities (`chatcmpl-123`, `functions.run:0`) names
nothing: such ids collide by themselves, so they neither prove a match nor ring an alarm.
"""

from __future__ import annotations

import math
import re
from typing import Final

Form = tuple[str, ...]

IDENTIFYING_BITS: Final = 48
"""Among ten thousand random ids of so many bits, two are the same once in five million times."""
WORD_MAX: Final = 12
_PARTS: Final = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")
_ALPHABETS: Final = (
    ("0", re.compile(r"[0-9]+"), 10),
    ("f", re.compile(r"[0-9a-f]+"), 16),
    ("z", re.compile(r"[0-9a-z]+"), 36),
    ("Z", re.compile(r"[0-9A-Za-z]+"), 62),
)
_BITS: Final = {name: math.log2(size) for name, _, size in _ALPHABETS}


def form_of(ident: str) -> Form:
    """Fixed words at the beginning stand as they are; every other part as the smallest alphabet that holds it, and its length."""
    form: list[str] = []
    words = True
    for part in _PARTS.findall(ident):
        if not part.isascii() or not part.isalnum() or (words and part.isalpha() and len(part) <= WORD_MAX):
            form.append(part)
        else:
            words = False
            form.append(f"{next(name for name, pattern, _ in _ALPHABETS if pattern.fullmatch(part))}{len(part)}")
    return tuple(form)


def bits(ident: str) -> float:
    """How much an id of this form says, at most."""
    total, words = 0.0, True
    for part in _PARTS.findall(ident):
        if not part.isascii() or not part.isalnum() or (words and part.isalpha() and len(part) <= WORD_MAX):
            continue
        words = False
        total += len(part) * _BITS[next(name for name, pattern, _ in _ALPHABETS if pattern.fullmatch(part))]
    return total


def identifying(ident: str) -> bool:
    """Whether it can be taken to name one thing in the world."""
    return bits(ident) >= IDENTIFYING_BITS
