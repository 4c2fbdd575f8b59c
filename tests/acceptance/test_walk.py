"""One call through all of it: a real process, a real socket, a scripted engine; and what stands on record afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.ledger.reading import LedgerReader
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import chat_once

Gateways = Callable[..., GatewayProcess]


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_is_answered_settled_and_on_record(gateways: Gateways, mock_process: MockProcess, stream: bool) -> None:
    gateway = gateways(mock_process.url, policy={"run": {"requests": 3}})
    run = gateway.opened("c1", "r1")
    answer = chat_once(gateway.port, run.key, stream=stream, max_tokens=9)
    assert answer.status == 200, answer.body
    assert answer.complete
    assert gateway.stop() == 0
    with LedgerReader(gateway.ledger) as reader:
        [call] = list(reader.calls())
        verification = reader.verify()
    assert (call["outcome"], call["source"]) == ("length", "reported")
    seen = mock_process.calls()[0]
    assert call["output_tokens"] == seen["output_tokens"] == 9
    assert verification.fits, verification
