"""What can be read off a llama.cpp server from outside: its health, its counters, its slots.

Plain blocking requests with a time-out each; call them from a thread where a loop runs.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Final, Self

TIMEOUT_S: Final = 10.0
_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounters:
    """An engine's own sums. Between two readings they give what was spent in between: `later - earlier`."""

    prompt_tokens: int
    """Without those taken from the cache: hold it against input - cached."""
    output_tokens: int

    def __sub__(self, earlier: Self) -> EngineCounters:
        return EngineCounters(prompt_tokens=self.prompt_tokens - earlier.prompt_tokens, output_tokens=self.output_tokens - earlier.output_tokens)


def healthy(address: str) -> bool:
    try:
        _get(address, "/health")
    except (urllib.error.URLError, OSError):
        return False
    return True


def counters(address: str) -> EngineCounters:
    """Raises OSError where the engine does not answer, ValueError where it gives no such counters."""
    return parse_counters(_get(address, "/metrics").decode())


def parse_counters(text: str) -> EngineCounters:
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    try:
        prompt, output = values["llamacpp:prompt_tokens_total"], values["llamacpp:tokens_predicted_total"]
    except KeyError as error:
        raise ValueError(f"the engine's metrics have no {error}") from error
    return EngineCounters(prompt_tokens=round(float(prompt)), output_tokens=round(float(output)))


def busy_slots(address: str) -> int:
    slots = json.loads(_get(address, "/slots"))
    return sum(1 for slot in slots if slot["is_processing"])


def _get(address: str, path: str) -> bytes:
    with _DIRECT.open(address + path, timeout=TIMEOUT_S) as answer:
        return bytes(answer.read())
