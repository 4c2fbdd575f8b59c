"""What a call wants: asked, policy, call cap and context folded into one number."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.accounting.decision import Demand
from gateway.accounting.limit import CallCaps
from gateway.accounting.wanting import NO_CEILING_TOKENS, make_demand


def wanted(**changes: Any) -> Demand:
    given: dict[str, Any] = {
        "prompt_tokens": 100,
        "exact": True,
        "can_count": True,
        "multiple": 1,
        "asked": None,
        "default": 8_000,
        "caps": CallCaps(),
        "context_tokens": 10_000,
    }
    return make_demand(**(given | changes))


@pytest.mark.parametrize(
    ("changes", "want", "least", "ceiling_from"),
    [
        ({}, 8_000, 1_024, "default"),
        ({"asked": 500}, 500, 500, "asked"),
        ({"asked": 0}, 0, 0, "asked"),
        ({"asked": 20_000}, 9_900, 1_024, "context"),
        ({"asked": 20_000, "caps": CallCaps(output_tokens=3_000)}, 3_000, 1_024, "call.output_tokens"),
        ({"caps": CallCaps(output_tokens=3_000, output_limit='call.model."m".output_tokens')}, 3_000, 1_024, 'call.model."m".output_tokens'),
        ({"asked": 500, "multiple": 4}, 2_000, 2_000, "asked"),
        ({"multiple": 4}, 32_000, 4_096, "default"),
        ({"multiple": 4, "caps": CallCaps(output_tokens=3_003)}, 3_000, 3_000, "call.output_tokens"),
        ({"over": "refuse"}, 8_000, 8_000, "default"),
        ({"min_output_tokens": 10}, 8_000, 10, "default"),
        ({"prompt_tokens": 10_001}, 0, 0, "context"),
        ({"caps": CallCaps(context_tokens=5_000)}, 4_900, 1_024, "call.context_tokens"),
        ({"caps": CallCaps(context_tokens=5_000, context_limit="call.x.context_tokens")}, 4_900, 1_024, "call.x.context_tokens"),
        ({"caps": CallCaps(context_tokens=5_000), "context_tokens": None}, 4_900, 1_024, "call.context_tokens"),
        ({"caps": CallCaps(context_tokens=10_000), "asked": 20_000}, 9_900, 1_024, "context"),
        ({"caps": CallCaps(context_tokens=5_000, output_tokens=4_899)}, 4_899, 1_024, "call.output_tokens"),
        ({"caps": CallCaps(context_tokens=5_000), "multiple": 4}, 19_600, 4_096, "call.context_tokens"),
        ({"caps": CallCaps(context_tokens=100)}, 0, 0, "call.context_tokens"),
        ({"default": None, "context_tokens": None}, NO_CEILING_TOKENS, 1_024, "none"),
    ],
)
def test_want_is_the_smallest_of_what_is_asked_allowed_and_possible(changes: dict[str, Any], want: int, least: int, ceiling_from: str) -> None:
    demand = wanted(**changes)
    assert (demand.want, demand.least, demand.ceiling_from) == (want, least, ceiling_from)
    assert demand.want % demand.multiple == demand.least % demand.multiple == 0
    assert demand.enough == 4_096 * demand.multiple


@pytest.mark.parametrize(("prompt", "exact", "lowered"), [(100, False, False), (2_001, False, True), (2_000, False, False), (2_001, True, False)])
def test_a_bound_lowers_want_only_where_the_context_left_by_it_is_what_is_smallest(prompt: int, exact: bool, lowered: bool) -> None:
    assert wanted(prompt_tokens=prompt, exact=exact).bound_lowered_want is lowered
    of_one_call = {"context_tokens": 99_000, "caps": CallCaps(context_tokens=10_000)}
    assert wanted(prompt_tokens=prompt, exact=exact, **of_one_call).bound_lowered_want is lowered
