"""These run by `make peers` alone: they need Debian's nginx and HAProxy."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.peers.peer import PEERS, Peer
from tests.support.control import OpenedRun
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.skips import skip

collect_ignore_glob = [] if os.environ.get("GATEWAY_PEERS") else ["test_*.py"]


@pytest.fixture(scope="session")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("gateway"), mock.url) as process:
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.process.output


@pytest.fixture(scope="session")
def run(gateway: GatewayProcess) -> OpenedRun:
    return gateway.opened("c1", "r1")


@pytest.fixture(scope="session", params=list(PEERS))
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, gateway: GatewayProcess) -> Iterator[Peer]:
    kind = PEERS[request.param]
    if why := kind.missing():
        skip(request.param, why)
    with kind(tmp_path_factory.mktemp(request.param), gateway.port) as process:
        yield process


@pytest.fixture(autouse=True)
def plain_engine(mock: MockProcess) -> None:
    mock.script({})
    mock.clear()
