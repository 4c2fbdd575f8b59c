"""The token of the control plane over TCP. Whoever has it may do all that the owner of the socket may; health alone is told without."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from gateway.control.problems import Problem

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OPEN_PATHS = frozenset(("/livez", "/readyz"))
"""For orchestrators, which hold no token."""


def token_required(token: str) -> Middleware:
    """A middleware; goes behind the one that words problems."""
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        presented = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if request.path not in OPEN_PATHS and not hmac.compare_digest(presented, expected):
            raise Problem(
                401, "unauthorized", "The control plane does not answer.", "The token is missing or wrong.", "Present the token of control.token_env."
            )
        return await handler(request)

    return check
