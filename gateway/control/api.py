"""The applications: every route of the control plane, and the few of the metrics listener."""

from __future__ import annotations

from aiohttp import web

from gateway.control.live import LOOKING, Looking
from gateway.control.openapi import show_document
from gateway.control.operations import EVERY, TELLING
from gateway.control.problems import answer_problems
from gateway.control.services import SERVICES, ControlServices

BODY_BYTES_MAX = 2 * 1024 * 1024
"""A plan of ten thousand runs stays below."""


def control_application(services: ControlServices) -> web.Application:
    app = web.Application(middlewares=[answer_problems], client_max_size=BODY_BYTES_MAX)
    app[SERVICES] = services
    app[LOOKING] = looking = Looking()
    app.on_shutdown.append(looking.close)
    app.add_routes([web.route(operation.method, operation.path, operation.answer) for operation in EVERY])
    app.add_routes([web.get("/v1/openapi.json", show_document)])
    return app


def metrics_application(services: ControlServices) -> web.Application:
    """What may be heard over TCP without a token."""
    app = web.Application(middlewares=[answer_problems], client_max_size=1024)
    app[SERVICES] = services
    app.add_routes([web.route(operation.method, operation.path, operation.answer) for operation in TELLING])
    return app
