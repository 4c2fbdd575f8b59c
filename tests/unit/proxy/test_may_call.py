"""What is refused before a body is read: a limit of which every call needs one, spent for longer than a call may wait."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.accounting.balances import Balances
from gateway.accounting.entries import PostingLine
from gateway.policy.declaration import GatewayLimits, Policy
from gateway.policy.loading import policy_from_text
from gateway.policy.remembered import Remembered
from gateway.proxy.may_call import check_left
from gateway.runs.keys import Identity
from gateway.services import Services
from gateway.upstream.call import Refusal, Refused

MIDNIGHT_MS = 1_790_035_200_000
"""2026-09-22T00:00:00Z"""
HEAD = 'apis = ["openai.chat"]\ntimezone = "UTC"\n[models.m]\n[lanes.foreground]\n[admission]\nqueue_seconds = 60\n'


class Place:
    """As much of a gateway as is asked."""

    def __init__(self, limits: str, now_ms: int = MIDNIGHT_MS - 3_600_000) -> None:
        self.policy: Policy = policy_from_text(HEAD + limits, "p.toml").policy
        self.balances = Balances()
        self.now_ms = now_ms
        self.deadline_ms: int | None = None
        self.services: Any = SimpleNamespace(
            ledger=SimpleNamespace(now_ms=lambda: self.now_ms, balances=self.balances),
            remembered=Remembered(GatewayLimits()),
            settings=SimpleNamespace(limits=GatewayLimits()),
            runs=SimpleNamespace(deadline=lambda _identity: None if self.deadline_ms is None else SimpleNamespace(at_ms=self.deadline_ms)),
        )
        campaign = SimpleNamespace(campaign="c", policy=self.policy, origins={})
        self.identity: Any = SimpleNamespace(campaign=campaign, run=SimpleNamespace(run="r"), lane="foreground")

    def use(self, name: str, *, settled: int = 0, reserved: int = 0) -> None:
        limits = self.services.remembered.limits(self.policy, campaign="c", run="r", lane="foreground", model="m", now_ms=self.now_ms, origins={})
        [limit] = [limit for limit in limits if limit.name == name]
        self.balances.apply([PostingLine(limit.account, reserved, settled)])

    def refusal(self) -> Refusal | None:
        try:
            check_left(cast(Services, self.services), cast(Identity, self.identity))
        except Refused as refused:
            return refused.refusal
        return None


@pytest.mark.parametrize("quantity", ["requests", "tool_calls"])
def test_the_last_one_goes_and_the_next_is_refused_with_the_limits_numbers(quantity: str) -> None:
    place = Place(f"[run]\n{quantity} = 3\n")
    place.use(f"run.{quantity}", settled=2)
    assert place.refusal() is None
    place.use(f"run.{quantity}", settled=1)
    refusal = place.refusal()
    assert refusal is not None and refusal.shortfall is not None
    assert (refusal.code, refusal.final, refusal.shortfall.name) == ("run_budget_reached", True, f"run.{quantity}")
    assert (refusal.shortfall.ceiling, refusal.shortfall.settled, refusal.shortfall.reserved, refusal.shortfall.asked) == (3, 3, 0, 1)


def test_a_request_that_was_sent_does_not_come_back() -> None:
    place = Place("[run]\nrequests = 3\n")
    place.use("run.requests", settled=1, reserved=2)
    assert place.refusal() is not None


@pytest.mark.parametrize("quantity", ["output_tokens", "input_tokens", "total_tokens", "concurrent"])
def test_what_hangs_on_the_body_or_comes_free_again_is_left_to_the_whole_decision(quantity: str) -> None:
    place = Place(f"[call]\noutput_tokens = 3\n[run]\n{quantity} = 3\n")
    place.use(f"run.{quantity}", settled=0 if quantity == "concurrent" else 3, reserved=3 if quantity == "concurrent" else 0)
    assert place.refusal() is None


@pytest.mark.parametrize(("before_ms", "refused"), [(60_001, True), (60_000, True), (59_999, False)])
def test_a_day_that_ends_within_the_wait_is_waited_for(before_ms: int, refused: bool) -> None:
    place = Place("[campaign.day]\nrequests = 3\n", MIDNIGHT_MS - before_ms)
    place.use("campaign.day.requests", settled=3)
    refusal = place.refusal()
    assert (refusal is not None) is refused
    assert refusal is None or (refusal.shortfall is not None and refusal.shortfall.resets_at_ms == MIDNIGHT_MS)
    place.deadline_ms = MIDNIGHT_MS
    assert place.refusal() is not None, "the run ends before the day does"


def test_of_several_the_narrowest_is_named() -> None:
    place = Place("[run]\nrequests = 3\n[run.foreground]\nrequests = 2\n[campaign]\nrequests = 3\n")
    for name in ("campaign.requests", "run.requests", "run.foreground.requests"):
        place.use(name, settled=3)
        refusal = place.refusal()
        assert refusal is not None and refusal.shortfall is not None and refusal.shortfall.name == name


def test_where_a_model_has_such_a_limit_its_name_must_be_known_first() -> None:
    place = Place('[run]\nrequests = 3\n[run.model."m"]\nrequests = 2\n')
    place.use("run.requests", settled=3)
    assert place.refusal() is None
