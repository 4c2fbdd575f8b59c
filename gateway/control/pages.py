"""The status page: three documents, a style sheet and a few modules that come with the package. They hold no data; what they show they ask for.

The rule: a page loads nothing but these and speaks to nothing but the listener that it came from, and its browser is told so. Paths in them are relative:
they work behind any prefix.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

from aiohttp import web

from gateway.reconcile.page import PALETTE

TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


@cache
def files() -> dict[str, bytes]:
    """By name."""
    found = {file.name: file.read_bytes() for file in resources.files("gateway.control").joinpath("page").iterdir() if file.is_file()}
    return {**found, "page.css": PALETTE.encode() + found["page.css"]}


async def overview_page(_request: web.Request) -> web.Response:
    return _file("overview.html")


async def run_page(_request: web.Request) -> web.Response:
    return _file("run.html")


async def call_page(_request: web.Request) -> web.Response:
    return _file("call.html")


async def page_file(request: web.Request) -> web.Response:
    if request.match_info["file"] not in files():
        raise web.HTTPNotFound
    return _file(request.match_info["file"])


def _file(name: str) -> web.Response:
    return web.Response(body=files()[name], content_type=TYPES[name.rpartition(".")[2]], charset="utf-8", headers=HEADERS)
