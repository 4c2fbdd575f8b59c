"""The control plane keeps what its OpenAPI document says: each request, made up from the document by schemathesis, against a real gateway over TCP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from gateway.control.openapi import document
from gateway.control.operations import EVERY
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess

TOKEN = "t" * 40
NAMES = {"campaign": "pilot", "run": "r1"}
SCHEMA = schemathesis.openapi.from_dict(document()).exclude(path="/v1/events")
"""A stream has no end to wait for; tests/integration/test_page.py reads it."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    control = {"control": {"listen": "127.0.0.1:0", "token_env": "CONTROL_TOKEN"}}
    with (
        MockProcess() as mock,
        GatewayProcess(tmp_path_factory.mktemp("openapi"), mock.url, settings=control, env={"CONTROL_TOKEN": TOKEN}) as gateway,
    ):
        gateway.opened("pilot", "r1")
        yield gateway.process.ready["control-tcp"]
        assert gateway.stop() == 0
        assert "Traceback" not in gateway.process.output


@SCHEMA.parametrize()
@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck), derandomize=True)
def test_each_request_is_answered_as_the_document_says(case: schemathesis.Case, plane: str) -> None:
    for name in case.path_parameters or {}:
        if name in NAMES and len(str(case.path_parameters[name])) % 2:  # about half of them name what is there
            case.path_parameters[name] = NAMES[name]
    # What stands decides too: a lane that the policy does not have is well written and refused. And 1.0 is no whole number here, as it is for JSON Schema.
    case.call_and_validate(base_url=plane, headers={"Authorization": f"Bearer {TOKEN}"}, excluded_checks=[positive_data_acceptance])


def test_the_document_has_every_operation_once() -> None:
    assert len({operation.name for operation in EVERY}) == len(EVERY)
    assert sum(len(methods) for methods in document()["paths"].values()) == len(EVERY) >= 35
