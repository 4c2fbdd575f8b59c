"""Which right name a wrong one was meant to be, and where it belongs.

The rule: the whole format is searched, not only the table where the wrong name stands: most mishaps are a right word one level too high.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import Final

from gateway.policy.declared import Path

_SAME: Final = {
    "daily": "day", "days": "day", "per_day": "day", "calls": "requests", "call": "requests", "request": "requests", "reqs": "requests",
    "prompt": "prompt_tokens", "tokens": "total_tokens", "parallel": "concurrent", "concurrency": "concurrent", "tz": "timezone", "zone": "timezone",
    "run": "runs", "seconds": "queue_seconds", "completion": "output_tokens", "url": "address",
    "wall": "wall_seconds", "wall_time": "wall_seconds", "wall_minutes": "wall_seconds", "minutes": "wall_seconds", "duration": "wall_seconds",
    "deadline": "wall_seconds", "span": "span_seconds", "span_hours": "span_seconds", "hours": "span_seconds", "context": "context_tokens",
    "context_length": "context_tokens", "context_size": "context_tokens", "attempts": "attempts_per_task", "tools": "tool_calls",
    "preflight": "require_preflight",
    "base_url": "address", "ca": "ca_file", "api_key": "credential_env",
}  # fmt: skip
_OUTPUT: Final = ("max_tokens", "max_completion_tokens", "max_new_tokens", "n_predict", "num_predict")
"""What engines call the output ceiling of a call."""
_NOISE: Final = frozenset({"max", "min", "limit", "limits", "budget", "budgets", "cap", "caps", "quota", "per", "of", "num", "number", "count", "the", "n"})
_PLACES: Final = ("call", "run", "campaign", "gateway", "day")
_CLOSE: Final = 0.72
_SLIP: Final = 0.85
"""So near that it is the same word in the same table, whatever it could mean elsewhere."""


def close(word: str, among: Collection[str]) -> str | None:
    """The one nearest word, or None where none is near."""
    found = get_close_matches(word.lower(), list(among), 1, _CLOSE)
    return found[0] if found else None


def nearest(path: Path, candidates: Sequence[Path]) -> list[Path]:
    """The right paths that this wrong one is nearest to, best first, at most three equal ones; empty where nothing is near."""
    slip = get_close_matches(path[-1], [found[-1] for found in candidates if found[:-1] == path[:-1]], 1, _SLIP)
    if slip:
        return [(*path[:-1], slip[0])]
    vocabulary = {part for candidate in candidates for part in candidate}
    leaf_names = {candidate[-1] for candidate in candidates}
    meant = [word for part in path for word in _words(part, vocabulary)]
    if not any(word in leaf_names for word in meant):
        likely = close(path[-1], leaf_names)
        if likely is None:
            return []
        meant = [*meant[:-1], likely]
    ranked = sorted((_distance(meant, path, candidate), candidate) for candidate in candidates if candidate[-1] in meant)
    best = ranked[0][0][:2] if ranked else ()
    return [candidate for distance, candidate in ranked if distance[:2] == best][:3]


def _words(part: str, vocabulary: Collection[str]) -> list[str]:
    """A key, taken apart into words of the format: `daily_call_budget` is `day` and `requests`."""
    if part in vocabulary:
        return [part]
    if part in _OUTPUT:
        return ["output_tokens"]
    pieces = [piece for piece in part.lower().replace("-", "_").split("_") if piece and piece not in _NOISE]
    places = [piece if piece in _PLACES else "day" for piece in pieces if (piece in _PLACES or _SAME.get(piece) == "day") and len(pieces) > 1]
    rest = [piece for piece in pieces if not places or (piece not in _PLACES and _SAME.get(piece) != "day")]
    if not rest:
        rest = [place for place in places if place in ("call", "run")]
        places = [place for place in places if place not in rest]
    return [place for place in places if place in vocabulary] + _joined(rest, vocabulary)


def _joined(pieces: list[str], vocabulary: Collection[str]) -> list[str]:
    if not pieces:
        return []
    whole = "_".join(pieces)
    if whole in _SAME and _SAME[whole] in vocabulary:
        return [_SAME[whole]]
    if whole in vocabulary:
        return [whole]
    likely = close(whole, [word for word in vocabulary if word not in _PLACES])
    if likely is not None:
        return [likely]
    if len(pieces) == 1:
        return [whole]
    return [word for piece in pieces for word in _joined([piece], vocabulary)]


def _distance(meant: Iterable[str], path: Path, candidate: Path) -> tuple[int, int, int, int, int]:
    """(named but not in the candidate, in the candidate but not named, other place, campaign first for days, order of the words)"""
    wanted, there = Counter(meant), Counter(candidate)
    missing, extra = sum((wanted - there).values()), sum((there - wanted).values())
    elsewhere = int(candidate[0] != path[0])
    broad_day = int("day" in candidate and candidate[0] != "campaign")
    return missing, extra, elsewhere, broad_day, _PLACES.index(candidate[0]) if candidate[0] in _PLACES else len(_PLACES)
