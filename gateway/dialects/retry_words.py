"""Words on which measured agents send a refused call again, whatever its status. No final refusal may hold one of them, nor any digit."""

from __future__ import annotations

import re
from typing import Final

RETRY_WORDS: Final = (
    "exhausted", "unavailable", "rate limit", "rate_limit", "ratelimit", "rate-limit", "too many requests", "try again", "retry", "overloaded", "overload",
    "server error", "server_error", "internal error", "temporar", "timeout", "timed out", "time out", "capacity", "busy", "throttl", "connection", "network",
    "econnreset", "socket", "bad gateway", "quota exceeded", "unexpected error", "upstream",
)  # fmt: skip
_FOUND: Final = re.compile("|".join([r"\d", *map(re.escape, RETRY_WORDS)]), re.IGNORECASE)


def is_final_wording(text: str) -> bool:
    """Nothing in it would make an agent send the call again."""
    return _FOUND.search(text) is None
