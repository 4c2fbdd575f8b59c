"""What is answered before there is a call: in the form of the API whose path was asked, in the same words whatever was asked; a refused call in its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.control import OpenedRun
from tests.support.every_api import APIS, UTILITY_PATHS, ask, body_of, error_of, gateway_of_all
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.waiting import eventually
from tests.support.wire import Wire, request

POLICIES: Any = {"shy": {"agent": {"require_preflight": True}}, "hasty": {"admission": {"queue_seconds": 0, "clamp_after_seconds": 0}}}
BY_PATH = [api for api in APIS if api != "tgi.generate"]
"""Its path belongs to another format too."""


def form_of(api: str) -> str:
    family = api.partition(".")[0]
    return {"anthropic": "anthropic", "openai": "openai", "rerank": "openai", "tokenize": "openai", "detokenize": "openai"}.get(family, "native")


@pytest.fixture(scope="module")
def mock() -> Iterator[MockProcess]:
    with MockProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mock: MockProcess) -> Iterator[GatewayProcess]:
    settings: Any = {"bounds": {"max_connections": 40}}
    with gateway_of_all(tmp_path_factory.mktemp("before"), mock.url, policies=POLICIES, settings=settings) as process:
        yield process
        assert process.stop() == 0


@pytest.mark.parametrize("api", BY_PATH)
@pytest.mark.parametrize("key", ["", "gw-unknown"])
def test_an_unknown_key_is_401_in_the_form_of_the_path(gateway: GatewayProcess, api: str, key: str) -> None:
    answer = ask(gateway, key, api, body_of(api))
    assert (answer.status, error_of(answer)) == (401, (form_of(api), "unauthorized", "The key is missing or not known."))
    assert answer.headers["x-request-id"] == answer.headers["request-id"]


UNDECLARED = {
    "/v1/messages/batches": "anthropic", "/v1/responses/resp_x": "openai", "/api/pull": "native", "/api/v1/models/load": "native", "/v1/files": "openai",
    "/slots": "openai", "/v1/chat/completions/x": "openai",
}  # fmt: skip


@pytest.mark.parametrize("path", UNDECLARED)
def test_an_undeclared_path_is_404_in_the_form_of_what_it_lies_below(gateway: GatewayProcess, path: str) -> None:
    run = gateway.opened("undeclared", path.strip("/").replace("/", "-").replace("_", "-"))
    with Wire(gateway.port) as wire:
        for key, status, code in ((run.key, 404, "not_found"), ("gw-x", 401, "unauthorized")):
            wire.send(request("POST", path, {"x-api-key": key}, b"{}"))
            answer = wire.answer()
            assert (answer.status, *error_of(answer)[:2]) == (status, UNDECLARED[path], code)


@pytest.fixture(scope="module")
def closed(gateway: GatewayProcess) -> OpenedRun:
    run = gateway.opened("closed", "r1")
    gateway.control.close_run(run)
    return run


FINAL = {"anthropic": 402, "native": 400}


def final_status(api: str) -> int:
    return 400 if api == "openai.responses" else FINAL.get(form_of(api), 404)


@pytest.mark.parametrize("api", BY_PATH)
def test_a_closed_run_is_final_in_its_form(gateway: GatewayProcess, closed: OpenedRun, api: str) -> None:
    answer = ask(gateway, closed.key, api, body_of(api))
    assert (answer.status, *error_of(answer)[:2]) == (final_status(api), form_of(api), "run_closed")
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(("path", "form"), [("/v1/models", "openai"), ("/api/tags", "native")])
def test_a_list_of_models_is_refused_in_its_form_too(gateway: GatewayProcess, closed: OpenedRun, path: str, form: str) -> None:
    with Wire(gateway.port) as wire:
        wire.send(request("GET", path, {"x-api-key": closed.key}))
        assert error_of(wire.answer())[:2] == (form, "run_closed")


@pytest.mark.parametrize("api", BY_PATH)
def test_a_preflight_that_is_missing_is_told_in_its_form(gateway: GatewayProcess, api: str) -> None:
    run = gateway.opened("shy", api.replace(".", "-").replace("_", "-"), policy="shy")
    answer = ask(gateway, run.key, api, body_of(api))
    assert (answer.status, *error_of(answer)[:2]) == (final_status(api), form_of(api), "preflight_required")


@pytest.fixture(scope="module")
def halted(gateway: GatewayProcess) -> OpenedRun:
    run = gateway.opened("hasty", "r1", policy="hasty")
    gateway.control.post("/v1/campaigns/hasty/halt", {"reason": "a test"})
    return run


@pytest.mark.parametrize("api", [api for api in BY_PATH if api not in UTILITY_PATHS])
def test_a_halted_campaign_is_passing_in_its_form(gateway: GatewayProcess, halted: OpenedRun, api: str) -> None:
    answer = ask(gateway, halted.key, api, body_of(api))
    assert (answer.status, *error_of(answer)[:2]) == (503 if form_of(api) == "native" else 429, form_of(api), "campaign_halted"), answer.body
    assert answer.headers["retry-after"] == "2" and "x-should-retry" not in answer.headers


def test_too_many_connections_are_told_in_the_form_of_the_path(gateway: GatewayProcess) -> None:
    run = gateway.opened("crowd", "r1")
    crowd = [Wire(gateway.port) for _ in range(60)]
    try:
        eventually(lambda: ask(gateway, run.key, "openai.chat", body_of("openai.chat")).status == 503, "the house is full")
        for api in BY_PATH:
            answer = ask(gateway, run.key, api, body_of(api))
            assert (answer.status, *error_of(answer)[:1]) == (503, form_of(api)), answer.body
    finally:
        for wire in crowd:
            wire.__exit__(None, None, None)
