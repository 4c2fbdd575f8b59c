"""The salt of an engine's prompt cache: who has the same one shares what is cached, and nobody else can tell by time what others have sent.

The rule: made of the campaign, or the run, with a secret of the gateway's, so that no agent can choose it or work it out; the same after a restart.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal


def cache_salt(secret: bytes, sharing: Literal["campaign", "run", "all"], campaign: str, run: str) -> str:
    """Empty: all share, no salt."""
    if sharing == "all":
        return ""
    sharers = f"campaign {campaign}" if sharing == "campaign" else f"run {campaign}/{run}"  # no name holds a blank or a slash
    return hmac.new(secret, sharers.encode(), hashlib.sha256).hexdigest()
