"""What a policy allows, in one word."""

from __future__ import annotations

from gateway.dialects.barred import BARRED, Allowed


def allowing(*names: str, inline_bytes: int | None = None) -> Allowed:
    assert all(name in BARRED for name in names)
    return Allowed(frozenset(names), inline_bytes)
