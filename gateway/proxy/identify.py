"""Who calls: the key alone, in any of three headers. Nothing else that an agent sends can change it."""

from __future__ import annotations

from collections.abc import Mapping

from multidict import CIMultiDict, CIMultiDictProxy

KEY_HEADERS = ("authorization", "x-api-key", "x-goog-api-key")

Headers = CIMultiDictProxy[str] | CIMultiDict[str]


def presented_key(headers: Headers) -> str | None:
    """The one key that the headers name; None where there is none, or where two name different keys."""
    found: set[str] = set()
    for name in KEY_HEADERS:
        if name not in headers:
            continue
        for value in headers.getall(name):
            found.add(_bearer(value) if name == "authorization" else value.strip())
    found.discard("")
    return found.pop() if len(found) == 1 else None


def _bearer(value: str) -> str:
    scheme, _, rest = value.strip().partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else value.strip()


SESSION_HEADERS: Mapping[str, int] = {
    "x-session-id": 128,
    "session-id": 128,
    "thread-id": 128,
    "x-client-request-id": 128,
    "x-claude-code-session-id": 128,
    "x-irid": 128,
    "x-initiator": 32,
    "x-stainless-retry-count": 8,
}
"""Headers that agents use to name their own session, and how many characters of each go on record (the join keys of reconciliation)."""


def session_headers(headers: Headers) -> dict[str, str]:
    """What the agent said of its session, bounded; recorded, never believed."""
    found = {}
    for name, most in SESSION_HEADERS.items():
        if name in headers:
            found[name] = headers[name].encode("utf-8", "backslashreplace").decode()[:most]
    return found
