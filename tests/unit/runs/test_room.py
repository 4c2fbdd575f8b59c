from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.accounting.limit import Account, Balance, Limit, Scope
from gateway.accounting.quantity import Quantity
from gateway.policy.declared import Declared
from gateway.runs.left import LimitLeft
from gateway.runs.room import missing_room, most
from tests.unit.runs.paper import policy

HEAD = """
schema = 1
apis = ["openai.chat"]
timezone = "Asia/Shanghai"
[models.small]
counter = "bytes"
overhead_tokens = 10
[models.large]
counter = "bytes"
overhead_tokens = 10
[lanes.foreground]
models = ["small"]
[lanes.background]
models = ["small", "large"]
"""


def left(ceiling: int, used: int = 0, quantity: Quantity = Quantity.REQUESTS, *, lane: str = "", model: str = "", window: str = "") -> LimitLeft:
    account = Account(scope=Scope.CAMPAIGN, subject="pilot", quantity=quantity, lane=lane, model=model, window=window)
    return LimitLeft(limit=Limit(name="campaign.x", account=account, ceiling=ceiling), balance=Balance(0, used))


def asked(text: str, limit: LimitLeft) -> int:
    """0 where there is room."""
    found = missing_room(policy(HEAD + text).policy, [limit])
    return 0 if found is None else found.asked


RUN = "[run]\nrequests = 60\n"
LANES = "[run.foreground]\nrequests = 50\n[run.background]\nrequests = 30\n"


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        (RUN, left(60), 0),
        (RUN, left(100, used=40), 0),
        (RUN, left(59), 60),
        (RUN, left(100, used=41), 60),
        ("", left(0), 0),
        (RUN, left(0, quantity=Quantity.OUTPUT_TOKENS), 0),
        (RUN, left(0, quantity=Quantity.CONCURRENT), 0),
        (RUN, left(0, quantity=Quantity.RUNS), 0),
        ("[run.foreground]\nrequests = 50\n", left(49), 50),
        (LANES, left(79), 80),
        (LANES, left(80), 0),
        (RUN + LANES, left(59), 60),
        (RUN + LANES, left(60), 0),
        (RUN + LANES, left(29, lane="background"), 30),
        (RUN + LANES, left(30, lane="background"), 0),
        (RUN, left(0, lane="background"), 0),
        (RUN, left(0, model="large"), 0),
        ('[run.model."large"]\nrequests = 7\n', left(6, model="large"), 7),
        ('[run.model."large"]\nrequests = 7\n', left(6, lane="background"), 7),
        ('[run.model."small"]\nrequests = 7\n', left(6, lane="background"), 0),
        ("[run]\ntool_calls = 120\n", left(119, quantity=Quantity.TOOL_CALLS), 120),
        (RUN, left(59, window="day 2026-10-03 Asia/Shanghai"), 60),
        ("[run.day]\nrequests = 5\n", left(4, window="day 2026-10-03 Asia/Shanghai"), 5),
        (RUN + "[run.day]\nrequests = 5\n", left(5, window="day 2026-10-03 Asia/Shanghai"), 0),
        ("[run.day]\nrequests = 5\n", left(4), 0),
    ],
)
def test_a_run_has_room_where_what_is_left_covers_its_own_caps(text: str, limit: LimitLeft, expected: int) -> None:
    assert asked(text, limit) == expected


def test_the_narrowest_limit_without_room_is_named_with_its_numbers() -> None:
    found = missing_room(policy(HEAD + RUN).policy, [left(60), left(50, used=3), left(1)])
    assert found is not None
    assert (found.name, found.ceiling, found.settled, found.reserved, found.asked) == ("campaign.x", 50, 3, 0, 60)


def test_a_limit_that_is_crossed_already_has_nothing_left() -> None:
    assert asked("[run]\nrequests = 1\n", left(5, used=9)) == 1
    assert asked("[run]\nrequests = 0\n", left(5, used=9)) == 0


CELLS = tuple(itertools.product("ab", "xy"))


def cap(lane: str, model: str, ceiling: int) -> Declared:
    return Declared(scope=Scope.RUN, quantity="requests", ceiling=ceiling, lane=lane, model=model)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(list(itertools.product(["", "a", "b"], ["", "x", "y"]))), st.integers(0, 3)), st.integers(0, 3))
def test_the_most_that_a_run_can_use_is_what_trying_everything_finds(ceilings: dict[tuple[str, str], int], whole: int) -> None:
    caps = [cap(lane, model, ceiling) for (lane, model), ceiling in (ceilings | {("", ""): whole}).items()]
    best = 0
    for used in itertools.product(range(4), repeat=len(CELLS)):
        spent = dict(zip(CELLS, used, strict=True))
        if all(sum(amount for cell, amount in spent.items() if one.concerns(*cell)) <= one.ceiling for one in caps):
            best = max(best, sum(used))
    assert most(CELLS, caps) == best
