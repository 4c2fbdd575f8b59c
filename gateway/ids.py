"""Names and ids: what they are made of, and how new ones are made.

Ids are made at the edges and handed to the pure core as plain strings.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from typing import Final, NewType

CallId = NewType("CallId", str)
CampaignId = NewType("CampaignId", str)
RunId = NewType("RunId", str)
"""A run's id is unique in its campaign; `CAMPAIGN/RUN` names it in the whole ledger."""
KeyId = NewType("KeyId", str)
Lane = NewType("Lane", str)

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""Campaign and run ids."""
LANE: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
KEY_PREFIX: Final = "gw-"


_DRAWN_BYTES: Final = 4_096
_drawn: list[str] = []


def _random_hex() -> str:
    """16 random hex digits. Drawn in bulk: every question to the kernel lets another thread run instead."""
    if not _drawn:
        digits = secrets.token_hex(_DRAWN_BYTES)
        _drawn.extend(digits[at : at + 16] for at in range(0, len(digits), 16))
    return _drawn.pop()


def new_call_id() -> CallId:
    """`call-` + 12 hex digits of the Unix time in ms + 16 random hex digits: sorts by time."""
    return CallId(f"call-{time.time_ns() // 1_000_000:012x}{_random_hex()}")


def new_run_id() -> RunId:
    return RunId(f"run-{secrets.token_hex(6)}")


def new_secret() -> str:
    """A key as the agent presents it: 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def secret_digest(secret: str) -> str:
    """SHA-256 in hex: all that is stored of a key."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def new_key_id() -> KeyId:
    return KeyId(f"key-{secrets.token_hex(6)}")
