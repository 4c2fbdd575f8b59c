"""What the status says of a call that waits."""

from __future__ import annotations

import pytest

from gateway.accounting.limit import Shortfall
from gateway.app import waiting_view
from gateway.upstream.waiter import WaitingView

SHORT = Shortfall(name="run.concurrent", ceiling=1, settled=0, reserved=1, asked=1)


def waits(in_the_way: Shortfall | None = None, *, halted: bool = False, counting: bool = False, sets_aside: tuple[str, ...] = ()) -> dict[str, object]:
    view = WaitingView(
        call_id="call-1",
        campaign="c",
        run="r",
        lane="foreground",
        engines=("local",),
        position=2,
        waited_ms=700,
        in_the_way=in_the_way,
        halted=halted,
        counting=counting,
        sets_aside=sets_aside,
    )
    return waiting_view(view)


@pytest.mark.parametrize(
    ("in_the_way", "halted", "counting", "reason"),
    [(None, False, False, "slot"), (None, False, True, "count"), (SHORT, False, False, "limit"), (SHORT, True, False, "halted"), (None, True, True, "halted")],
)
def test_a_call_that_waits_says_for_what(in_the_way: Shortfall | None, halted: bool, counting: bool, reason: str) -> None:
    assert waits(in_the_way, halted=halted, counting=counting)["reason"] == reason


def test_it_says_its_place_how_long_and_the_limit_in_its_way_with_its_numbers() -> None:
    assert waits(SHORT, sets_aside=("campaign.output_tokens",)) == {
        "call": "call-1",
        "campaign": "c",
        "run": "r",
        "lane": "foreground",
        "engine": "local",
        "position": 2,
        "waited_ms": 700,
        "reason": "limit",
        "limit": {"name": "run.concurrent", "ceiling": 1, "settled": 0, "reserved": 1, "asked": 1},
        "sets_aside": ["campaign.output_tokens"],
    }
