"""Handlers of the engines: how each stands, and whether a person wants calls to go there."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from gateway.control.problems import Problem
from gateway.control.services import SERVICES
from gateway.control.views import answer


async def list_upstreams(request: web.Request) -> web.Response:
    return answer({"upstreams": [dict(view) for view in request.app[SERVICES].upstream_view()]})


async def drain_upstream(request: web.Request) -> web.Response:
    """It gets no calls from now on; those that run go on."""
    return answer(_drained(request, True))


async def resume_upstream(request: web.Request) -> web.Response:
    return answer(_drained(request, False))


def _drained(request: web.Request, drained: bool) -> Mapping[str, object]:
    services, name = request.app[SERVICES], request.match_info["upstream"]
    named = [str(view["upstream"]) for view in services.upstream_view()]
    if name not in named:
        raise Problem(404, "not_found", f"There is no upstream {name!r}.", f"There are: {', '.join(named) or 'none'}.", "Name one of these.")
    services.drain(name, drained)
    return next(view for view in services.upstream_view() if view["upstream"] == name)
