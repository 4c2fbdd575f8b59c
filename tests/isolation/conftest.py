"""These run by `make isolation` alone: they need root and nftables."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.agents import namespaces
from tests.support.skips import skip

collect_ignore_glob = [] if os.environ.get("GATEWAY_ISOLATION") else ["test_*.py"]


@pytest.fixture(scope="session")
def isolation() -> None:
    if why := namespaces.missing():
        skip("network-namespaces", why)
    if shutil.which("nft") is None:
        skip("no-nftables", "nft is not installed")
