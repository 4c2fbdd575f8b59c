"""A policy of another version stands in the ledger: what serves can't go on under it, what is closed stays what it is."""

from __future__ import annotations

import json

import pytest

from gateway.accounting.commands import Results
from gateway.errors import ConfigurationError
from gateway.ledger.state import CampaignRecord, CampaignStanding, KeyRecord, LedgerState, RunRecord, RunStanding
from gateway.policy.canonical import canonical
from gateway.runs.declined import Declined
from tests.unit.runs.paper import World, policy

OWN = canonical(policy().policy)
OTHERS = {
    "older schema": json.dumps({**json.loads(OWN), "schema": 0}),
    "newer schema": json.dumps({**json.loads(OWN), "schema": 2}),
    "a key that is gone": json.dumps({**json.loads(OWN), "daily_call_budget": 30}),
    "no policy": "[]",
    "no JSON": "schema = 1",
}
other = pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS.keys())


def state(text: str, standing: CampaignStanding) -> LedgerState:
    campaign = CampaignRecord(campaign="old", opened_at_ms=1, policy_name="p", policy=text, policy_hash="a1b2", standing=standing)
    beside = CampaignRecord(campaign="new", opened_at_ms=2, policy_name="p", policy=OWN, policy_hash="c3d4", standing=CampaignStanding.OPEN)
    run = RunRecord(campaign="old", run="r1", opened_at_ms=1, standing=RunStanding.CLOSED, results=Results(exit=0))
    key = KeyRecord(campaign="old", run="r1", lane="night", key_id="k1", digest="00" * 32, issued_at_ms=1)
    return LedgerState(campaigns=(campaign, beside), runs=(run,), keys=(key,))


@other
@pytest.mark.parametrize("standing", [CampaignStanding.CLOSED, CampaignStanding.CLOSING])
async def test_a_campaign_that_serves_no_more_does_not_stop_the_start(text: str, standing: CampaignStanding) -> None:
    world = World(state(text, standing))
    old, new = world.runs.campaigns()
    assert (old.policy_hash, old.state, old.limits_hash, new.policy_problem) == ("a1b2", standing, "", "")
    assert old.policy_problem
    assert new.serves and new.limits_hash
    assert world.runs.run("old", "r1").results == Results(exit=0), "what it declared stands"
    with pytest.raises(Declined, match="can't be shown"):
        world.runs.budget("old", "r1")
    with pytest.raises(Declined):
        await world.runs.open_run("old", "r2")


@other
@pytest.mark.parametrize("standing", [CampaignStanding.OPEN, CampaignStanding.HALTED])
async def test_one_that_serves_stops_the_start_and_is_named_with_a_mend(text: str, standing: CampaignStanding) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)campaign 'old' can't be served.*cause: .*mend: "):
        World(state(text, standing))
