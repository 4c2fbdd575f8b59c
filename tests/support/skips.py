"""Skipping a test, by an id that a run of the suite can allow or forbid.

`GATEWAY_SKIPS_ALLOWED`, when set, names the ids that may be skipped (blanks or commas between them); any other skip then fails the session.
"""

from __future__ import annotations

import os
import re
from typing import NoReturn

import pytest

VARIABLE = "GATEWAY_SKIPS_ALLOWED"
NO_ID = "(no id)"
_MARKED = re.compile(r"\[([a-z0-9-]+)\] ")


def skip(id: str, reason: str) -> NoReturn:
    """`id`: lower-case words joined by `-`, named after what is missing."""
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", id), id
    pytest.skip(f"[{id}] {reason}", allow_module_level=True)


def id_of(reason: str) -> str:
    found = _MARKED.search(reason)
    return found[1] if found else NO_ID


def allowed() -> frozenset[str] | None:
    """None: whatever is skipped is only told."""
    value = os.environ.get(VARIABLE)
    return None if value is None else frozenset(re.split(r"[\s,]+", value.strip())) - {""}
