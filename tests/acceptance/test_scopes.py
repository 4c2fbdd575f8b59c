"""Every scope, also × lane, × model, × both and a day: two calls go, the third is refused by that name, and what is not meant is not stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_process import POLICY, GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import chat_once
from tests.support.toml import Tables, merged

PATHS: dict[str, tuple[str, ...]] = {
    "run": ("run",),
    "run.day": ("run", "day"),
    "run.background": ("run", "background"),
    "run.background.day": ("run", "background", "day"),
    'run.model."mock"': ("run", "model", "mock"),
    'run.model."mock".day': ("run", "model", "mock", "day"),
    'run.background.model."mock"': ("run", "background", "model", "mock"),
    'run.background.model."mock".day': ("run", "background", "model", "mock", "day"),
    "campaign": ("campaign",),
    "campaign.day": ("campaign", "day"),
    "campaign.background": ("campaign", "background"),
    "campaign.background.day": ("campaign", "background", "day"),
    'campaign.model."mock"': ("campaign", "model", "mock"),
    'campaign.model."mock".day': ("campaign", "model", "mock", "day"),
    'campaign.background.model."mock"': ("campaign", "background", "model", "mock"),
    'campaign.background.model."mock".day': ("campaign", "background", "model", "mock", "day"),
}
QUANTITIES = ("requests", "total_tokens")


def policy_of(path: tuple[str, ...], quantity: str, ceiling: int) -> Tables:
    limits: Any = {quantity: ceiling}
    for part in reversed(path):
        limits = {part: limits}
    base: Tables = {
        "timezone": "Pacific/Chatham",
        "lanes": {"foreground": {}, "background": {}},
        "models": {"other": {"default_output_tokens": 64}},
        "admission": {"queue_seconds": 0},
    }
    return merged(merged(POLICY, base), limits)


def name_of(scope: str, quantity: str) -> str:
    return f"{list(PATHS).index(scope)}-{quantity.replace('_', '-')}"


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess(script={"output_tokens": 2}) as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    from gateway.mock_engine.tokens import count, render
    from tests.support.crowd import MESSAGES

    tokens = count(render({"messages": MESSAGES})) + 2
    ceilings = {"requests": 2, "total_tokens": 2 * tokens}
    policies = {name_of(scope, quantity): policy_of(path, quantity, ceilings[quantity]) for scope, path in PATHS.items() for quantity in QUANTITIES}
    with GatewayProcess(tmp_path_factory.mktemp("scopes"), mock.url, policies=policies, models={"mock": "mock", "other": "other"}) as process:
        yield process


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("scope", PATHS)
def test_a_limit_stops_whom_it_names_and_nobody_else(gateway: GatewayProcess, mock: MockProcess, scope: str, quantity: str) -> None:
    policy = name_of(scope, quantity)
    run, sibling = (gateway.opened(policy, name, policy=policy) for name in ("r1", "r2"))

    def call(key: str, model: str = "mock") -> str:
        """The limit that refused it; empty where it went."""
        answer = chat_once(gateway.port, key, model=model, max_tokens=2)
        assert answer.status in (200, 404), answer.body
        assert ("x-gateway-resets-at" in answer.headers) == (answer.status == 404 and scope.endswith(".day"))
        return answer.headers["x-gateway-limit"] if answer.status == 404 else ""

    refused = f"{scope}.{quantity}"
    background, foreground = run.keys["background"], run.keys["foreground"]
    assert [call(background) for _ in range(3)] == ["", "", refused]
    assert call(foreground) == ("" if "background" in scope else refused), "another lane"
    assert call(background, "other") == ("" if "model" in scope else refused), "another model"
    assert call(sibling.keys["background"]) == ("" if scope.startswith("run") else refused), "another run"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ((), "gateway.requests"),
        (("day",), "gateway.day.requests"),
        (("background",), "gateway.background.requests"),
        (("model", "mock"), 'gateway.model."mock".requests'),
        (("background", "model", "mock", "day"), 'gateway.background.model."mock".day.requests'),
    ],
)
def test_a_limit_of_the_gateway_stops_every_campaign(tmp_path: Path, mock: MockProcess, path: tuple[str, ...], name: str) -> None:
    limits: Any = {"requests": 2}
    for part in reversed(path):
        limits = {part: limits}
    policy = policy_of(("run",), "concurrent", 1)
    settings: Tables = {"limits": {"timezone": "UTC", **limits} if "day" in path else limits}
    with GatewayProcess(tmp_path, mock.url, settings=settings, policy=policy, models={"mock": "mock", "other": "other"}) as process:
        runs = [process.opened(f"c{number}", "r1") for number in range(3)]
        answers = [chat_once(process.port, run.keys["background"], max_tokens=2) for run in runs]
        assert [answer.status for answer in answers] == [200, 200, 404]
        assert answers[-1].headers["x-gateway-limit"] == name
        assert chat_once(process.port, runs[2].keys["foreground"], max_tokens=2).status == (200 if "background" in path else 404)
        assert chat_once(process.port, runs[2].keys["background"], model="other", max_tokens=2).status == (200 if "model" in path else 404)
