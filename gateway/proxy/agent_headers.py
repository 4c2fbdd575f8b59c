"""Headers of an agent that would steer an engine or lead elsewhere. None ever reaches an engine: they are refused, so that no agent believes that they worked.

The rule: as for fields of bodies, `guard.strip` of the policy drops them without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gateway.dialects.body_fields import not_allowed

_THINGS: Final = {"x-conversation-id": "conversation_headers", "x-data-parallel-rank": "engine_headers", "x-session-params": "engine_headers"}
_STEERS: Final = re.compile(r"x-sglext-.+")
_ROUTES: Final = re.compile(r"x-portkey-.+|(?:.+-)?(?:custom|target|upstream|backend)-(?:host|url|base-url)|(?:.+-)?(?:api|openai)-base(?:-url)?")
_SIGNS: Final = (*_THINGS, "x-sglext-", "x-portkey-", "-host", "-url", "-base")
"""In each name that the patterns above take."""


def check_headers(names: Iterable[str], stripped: frozenset[str]) -> None:
    """Raises BodyError with the first of them."""
    told = "\n".join(names).lower()
    if not any(map(told.__contains__, _SIGNS)):  # as nearly all: one look at all names costs a tenth of one at each
        return
    for name in told.split("\n"):
        thing = _thing(name)
        if thing and thing not in stripped:
            raise not_allowed(name, thing, "header")


def _thing(name: str) -> str:
    if name in _THINGS:
        return _THINGS[name]
    if _STEERS.fullmatch(name):
        return "engine_headers"
    return "routing" if _ROUTES.fullmatch(name) else ""
