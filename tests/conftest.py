"""Fixtures that all storeys share, and the plugin that keeps the session's accounts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.demo.engine import RealEngine, smollm2_engine, tiny_engine
from gateway.errors import ConfigurationError
from gateway.mock_engine import MockEngine
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.skips import skip
from tests.support.storeys import Storeys


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Storeys(), "storeys")


@pytest.fixture
async def engine() -> AsyncIterator[MockEngine]:
    """A scripted engine in the test's own loop."""
    async with MockEngine() as engine:
        yield engine


@pytest.fixture
def mock_process() -> Iterator[MockProcess]:
    """A scripted engine in a process of its own."""
    with MockProcess() as engine:
        yield engine


GatewayMaker = Callable[..., GatewayProcess]


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[GatewayMaker]:
    """`gateways(engine.url, policy={...})` starts `gateway serve`; each call a gateway of its own, all ended with the test."""
    with ExitStack() as stack:
        count = iter(range(1_000))

        def start(engine_url: str, **options: object) -> GatewayProcess:
            return stack.enter_context(GatewayProcess(tmp_path / f"gateway-{next(count)}", engine_url, **options))  # type: ignore[arg-type]

        yield start


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    """A real llama.cpp with the tiny random model, for the whole session: read its counters before and after."""
    yield from _running(lambda: tiny_engine(tmp_path_factory.mktemp("tiny-model")))


@pytest.fixture(scope="session")
def smollm2() -> Iterator[RealEngine]:
    """A real llama.cpp with SmolLM2-135M, for the whole session."""
    yield from _running(smollm2_engine)


def _running(make: Callable[[], RealEngine]) -> Iterator[RealEngine]:
    try:
        engine = make().start()
    except ConfigurationError as error:
        skip("real-engine", str(error))
    yield engine
    engine.stop()
