"""What someone kept of a ledger, to hold it against later: receipts and heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Anchor:
    """That a chain had this hash at this place."""

    chain: str
    sequence: int
    hash: str


def anchors_in(kept: object) -> Iterator[Anchor]:
    """Every object with `chain`, `sequence` and `hash`, at any depth: a receipt vouches for itself and for the head that it names."""
    if isinstance(kept, list):
        for inner in kept:
            yield from anchors_in(inner)
    elif isinstance(kept, dict):
        match kept:
            case {"chain": str(chain), "sequence": int(sequence), "hash": str(hashed)}:
                yield Anchor(chain, sequence, hashed.lower())
        for inner in kept.values():
            yield from anchors_in(inner)
