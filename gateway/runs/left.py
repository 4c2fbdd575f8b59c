"""What is left: every limit that a run, or a campaign, can meet at this moment, with what is settled and reserved on its account."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.accounting.limit import SCOPE_ORDER, Balance, Limit, Scope
from gateway.policy.declaration import GatewayLimits
from gateway.policy.declared import Declared
from gateway.policy.resolve import broad_limits, resolve_limits, run_limits
from gateway.runs.book import Book
from gateway.runs.campaigns import CampaignState


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitLeft:
    limit: Limit
    balance: Balance

    @property
    def left(self) -> int:
        """Never below nothing, also where a call crossed the ceiling."""
        return max(0, self.limit.ceiling - self.balance.settled - self.balance.reserved)


def left(book: Book, campaign: CampaignState, gateway_limits: GatewayLimits, run: str = "", lane: str = "") -> tuple[LimitLeft, ...]:
    """Narrow to broad, each once. Without a run: the campaign's and the gateway's; with a lane: those of this lane alone."""
    now_ms = book.now_ms()
    policy = campaign.policy
    found: dict[str, Limit] = {}
    for each in (lane,) if lane else policy.lane_names:
        for model in policy.models_of(each):
            for limit in resolve_limits(
                policy, gateway_limits, campaign=campaign.campaign, run=run, lane=each, model=model, now_ms=now_ms, origins=campaign.origins
            ):
                if run or limit.account.scope is not Scope.RUN:
                    found.setdefault(limit.name, limit)
    if not run:
        for limit in run_limits(policy, gateway_limits, campaign.campaign, now_ms, campaign.origins):
            found.setdefault(limit.name, limit)
    ordered = sorted(found.values(), key=lambda limit: SCOPE_ORDER[limit.account.scope])
    return tuple(LimitLeft(limit=limit, balance=book.balances.of(limit.account)) for limit in ordered)


def broad_left(book: Book, declared: Iterable[Declared], campaign: str = "") -> tuple[LimitLeft, ...]:
    """Of a campaign's own limits, or of the gateway's, whatever lane or model they are about."""
    return tuple(LimitLeft(limit=limit, balance=book.balances.of(limit.account)) for limit in broad_limits(declared, campaign, book.now_ms()))
