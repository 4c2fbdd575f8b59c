"""The policy that a campaign's opening entry holds, read when the gateway starts.

A campaign that serves cannot go on under rules that this version cannot read: the gateway does not start. One that is closing or closed has no more calls to
admit: its runs, keys, results and receipts stay what they are, and only its limits cannot be shown.
"""

from __future__ import annotations

from typing import Final

from gateway.errors import ConfigurationError
from gateway.ledger.state import CampaignRecord, CampaignStanding
from gateway.logs import log
from gateway.policy.canonical import parse_canonical
from gateway.policy.declaration import ModelPolicy, Policy

UNREADABLE: Final = Policy(apis=("openai.chat",), models={"unknown": ModelPolicy()})
"""Stands where nothing is admitted any more: no limit, every default."""


def stored_policy(record: CampaignRecord) -> tuple[Policy, str]:
    """The policy, and why it is not the campaign's own where it can't be read. Raises ConfigurationError where the campaign serves."""
    try:
        return parse_canonical(record.policy), ""
    except (ConfigurationError, ValueError) as error:  # pydantic's and json's are ValueErrors
        problem = " ".join(str(error).split())[:500]
    if record.standing in (CampaignStanding.OPEN, CampaignStanding.HALTED):
        raise ConfigurationError(
            f"campaign {record.campaign!r} can't be served: its policy can't be read by this version\n  cause: {problem}\n"
            "  mend:  close it with the version that opened it (gateway campaign close), then start this one"
        )
    log.warning("the policy of a closed campaign can't be read", extra={"fields": {"campaign": record.campaign, "reason": problem}})
    return UNREADABLE, problem
