"""A browser, and a gateway with campaigns, runs, waiting calls, refusals and closed runs to look at. These run by `make page` alone: they need Debian's
package `chromium`, Playwright, and two minutes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.cli.page import Forwarder, forwarder
from gateway.client.control import ControlClient
from tests.page.scene import Scene
from tests.support.skips import skip

collect_ignore_glob = [] if os.environ.get("GATEWAY_PAGE") else ["test_*.py"]

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

try:
    from playwright.sync_api import Browser, sync_playwright
except ImportError:
    sync_playwright = None  # type: ignore[assignment]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if sync_playwright is None:
        skip("playwright", "`make page` installs it")
    if not CHROMIUM.exists():
        skip("chromium", "apt-get install --no-install-recommends chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield stack.enter_context(Scene(tmp_path_factory.mktemp("page")))


@pytest.fixture(scope="session")
def page_server(scene: Scene) -> Iterator[Forwarder]:
    with forwarder(ControlClient(scene.gateway.control.path)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
