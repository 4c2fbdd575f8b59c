"""The body that is sent is written as it was checked; what an answer tells of limits is of the run's own lifetime alone, and only where agents may know."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.accounting.balances import Balances
from gateway.accounting.limit import Account, Balance, Limit, Scope
from gateway.accounting.quantity import Quantity
from gateway.dialects.received import write
from gateway.proxy.answer_headers import answer_headers, left_headers
from gateway.proxy.calls import Call
from gateway.runs.telling import Telling
from gateway.services import Services
from gateway.upstream.call import Admission


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(st.characters(codec=None)), lambda inner: st.lists(inner, max_size=4), max_leaves=8))
@settings(max_examples=150, deadline=None)
def test_what_is_written_reads_as_what_it_was(value: Any) -> None:
    assert json.loads(write({"a": value})) == {"a": value}


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_number_that_is_none_beside_a_huge_one_is_never_written(value: float) -> None:
    with pytest.raises(ValueError):
        write({"a": 2**70, "b": value})


def limit(scope: Scope, quantity: Quantity, ceiling: int, **more: str) -> Limit:
    return Limit(account=Account(scope=scope, subject="c1/r1", quantity=quantity, **more), ceiling=ceiling, name=f"{scope}.{quantity}")


def headers(limits: list[Limit], *, settled: int = 3, tell: bool = True, clamped_by: str | None = None, waited_ms: int = 0) -> dict[str, str]:
    run = SimpleNamespace(telling=Telling())
    call: Any = SimpleNamespace(policy=SimpleNamespace(agent=SimpleNamespace(tell_agent=tell)), identity=SimpleNamespace(run=run))
    balances = Balances({limit.account: Balance(settled=settled, reserved=99) for limit in limits})
    services: Any = SimpleNamespace(ledger=SimpleNamespace(balances=balances))
    admission: Any = SimpleNamespace(limits=tuple(limits), clamped_by=clamped_by, waited_ms=waited_ms, output=1536)
    return {**answer_headers(cast(Call, call), cast(Admission, admission)), **left_headers(call, cast(Admission, admission), cast(Services, services))()}


def test_left_is_the_ceiling_less_what_is_settled_whatever_is_reserved() -> None:
    limits = [limit(Scope.RUN, Quantity.REQUESTS, 10), limit(Scope.RUN, Quantity.INPUT_TOKENS, 100), limit(Scope.RUN, Quantity.OUTPUT_TOKENS, 2)]
    assert headers(limits) == {"x-gateway-left-requests": "7", "x-gateway-left-input": "97", "x-gateway-left-output": "0"}


def test_only_the_runs_own_lifetime_limits_are_told() -> None:
    others = [
        limit(Scope.CAMPAIGN, Quantity.REQUESTS, 10),
        limit(Scope.RUN, Quantity.REQUESTS, 10, lane="background"),
        limit(Scope.RUN, Quantity.REQUESTS, 10, model="m"),
        limit(Scope.RUN, Quantity.REQUESTS, 10, window="2026-01-01"),
        limit(Scope.RUN, Quantity.TOTAL_TOKENS, 10),
        limit(Scope.RUN, Quantity.CONCURRENT, 10),
    ]
    assert headers(others) == {}


def test_a_clamp_and_a_wait_are_told() -> None:
    assert headers([], clamped_by="run.output_tokens", waited_ms=12) == {"x-gateway-clamped": "1536 run.output_tokens", "x-gateway-waited-ms": "12"}


def test_an_agent_that_may_not_know_is_told_its_wait_alone() -> None:
    assert headers([limit(Scope.RUN, Quantity.REQUESTS, 10)], tell=False, clamped_by="run.output_tokens", waited_ms=12) == {"x-gateway-waited-ms": "12"}
