"""These run by `make image` alone: they need root, buildah, debootstrap, and minutes."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.agents import namespaces
from tests.support.skips import skip

collect_ignore_glob = [] if os.environ.get("GATEWAY_IMAGE") else ["test_*.py"]


@pytest.fixture(scope="session")
def containers() -> None:
    if why := namespaces.missing():
        skip("network-namespaces", why)
    for program in ("buildah", "debootstrap", "unshare", "nsenter"):
        if shutil.which(program) is None:
            skip(f"no-{program}", f"{program} is not installed")
