"""Two hundred callers on one gateway, and what is looked at afterwards: balances, rows, and the bodies that reached the engine."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from gateway.ledger.reading import LedgerReader
from gateway.mock_engine.tokens import count, render
from tests.support import record
from tests.support.control import OpenedRun
from tests.support.crowd import MESSAGES, Caller, crowd
from tests.support.gateway_process import POLICY, GatewayProcess
from tests.support.mock_process import MockProcess
from tests.support.raw_http import RawAnswer
from tests.support.toml import Tables, merged
from tests.support.waiting import eventually

PROMPT: Final = count(render({"messages": MESSAGES}))
"""Tokens of what each caller says."""
Called = tuple[OpenedRun, str, dict[str, object]]
"""A run, a lane of it, what the body has beside the messages."""


BY_BYTES: Final[Tables] = {"counter": "bytes", "overhead_tokens": 8}


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def exact_gateway(folder: Path, mock: MockProcess, policies: Mapping[str, Tables]) -> Iterator[GatewayProcess]:
    """In the end nothing may be held, and the ledger must fit. Its model `timed` gives up after a second, `gone` is at an address where nobody is."""
    models: Tables = {"models": {"mock": {}, "timed": {"default_output_tokens": 16}, "gone": {"default_output_tokens": 16, **BY_BYTES}}}
    whole = {name: merged(merged(POLICY, models), tables) for name, tables in policies.items()}
    timed = {"address": mock.url, "engine": "llama.cpp", "slots": 8, "models": {"timed": "mock"}, "timeouts": {"first_byte_s": 1}}
    gone = {"address": f"http://127.0.0.1:{unused_port()}", "engine": "generic", "slots": 20, "models": {"gone": "mock"}}
    settings: Tables = {"upstreams": {"timed": timed, "gone": gone}, "limits": {"requests": 10_000}}
    with GatewayProcess(folder, mock.url, policies=whole, slots=64, settings=settings) as process:
        yield process
        eventually(lambda: process.control.metric("gateway_in_flight_calls") == 0, "nothing is in flight")
        assert record.reserved(process) == 0
        assert process.stop() == 0
        assert record.fits(process)


def all_at_once(gateway: GatewayProcess, callers: list[Called]) -> list[RawAnswer]:
    return crowd(gateway.port, [Caller(key=run.keys[lane], body=body) for run, lane, body in callers])


def settled(gateway: GatewayProcess, run: OpenedRun, name: str) -> int:
    [limit] = [limit for limit in gateway.control.run(run)["limits"] if limit["name"] == name]
    assert limit["reserved"] == 0
    return int(limit["settled"])


def rows(gateway: GatewayProcess, run: OpenedRun) -> list[dict[str, Any]]:
    with LedgerReader(gateway.ledger) as reader:
        return list(reader.calls(campaign=run.campaign, run=run.run))


def bodies(mock: MockProcess) -> list[dict[str, Any]]:
    return [json.loads(call["body"]) for call in mock.calls()]
