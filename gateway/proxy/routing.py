"""Default deny: a request goes on only if its method and its path, after one strict normalisation, are a declared API. All else is 404."""

from __future__ import annotations

import re

PLAIN_PATH = re.compile(r"(?:/(?!\.+(?:/|\Z))[A-Za-z0-9._-]+)+")
"""No escapes, no doubled or trailing slash, no authority in front, no segment of nothing but dots."""


def plain_path(target: str) -> str | None:
    """The path of a request target, or None where it is anything but plain (encoded, doubled, dotted, absolute form).

    The query is dropped: nothing of it is forwarded.
    """
    path = target.partition("?")[0]
    return path if PLAIN_PATH.fullmatch(path) else None
