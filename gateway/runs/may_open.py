"""Whether one more run may open, before anything is posted. Each check raises Declined with the limit that stands in the way."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.accounting.limit import Limit, Shortfall
from gateway.policy.resolve import attempts_limit
from gateway.runs.book import Book
from gateway.runs.campaigns import CampaignState
from gateway.runs.deadlines import span_deadline
from gateway.runs.declined import Declined
from gateway.runs.left import LimitLeft
from gateway.runs.room import missing_room


def check_span(campaign: CampaignState, now_ms: int) -> None:
    span = span_deadline(campaign.times, campaign.opened_at_ms, campaign.origins)
    if span is not None and span.passed(now_ms):
        shortfall = span.shortfall(now_ms)
        cause = f"{span.limit_name} is {span.ceiling_s}, and its opening was {shortfall.settled} seconds ago."
        raise Declined(_problem(campaign), cause, "Open another campaign.", code=span.code, shortfall=shortfall)


def check_attempts(campaign: CampaignState, task: str) -> None:
    """Every run that was opened counts, whatever became of it."""
    limit = attempts_limit(campaign.policy)
    if limit is None:
        return
    if not task:
        raise Declined(
            _problem(campaign), f"Its policy sets {limit.name}, and no task is named.", "Name the task that the run is an attempt at.", code="invalid"
        )
    opened = sum(run.task == task for run in campaign.runs.values())
    if opened >= limit.ceiling:
        origin = campaign.origins.get(limit.name, "")
        raise Declined(
            f"No run opens for task {task!r} in campaign {campaign.campaign!r}.",
            f"{limit.name} is {limit.ceiling}, and {opened} were opened.",
            "Its attempts are used up: open a campaign under a policy that allows more.",
            code="run_budget_reached",
            shortfall=Shortfall(name=limit.name, ceiling=limit.ceiling, settled=opened, reserved=0, asked=1, origin=origin),
        )


def check_runs(book: Book, campaign: CampaignState, limits: Sequence[Limit]) -> None:
    """`limits`: those on `runs`."""
    for limit in limits:
        balance = book.balances.of(limit.account)
        if balance.settled + balance.reserved + 1 > limit.ceiling:
            raise Declined(
                _problem(campaign),
                f"{limit.name} is {limit.ceiling}, and {balance.settled + balance.reserved} were opened.",
                "Open a campaign under a policy that allows more." if limit.window_end_ms is None else "Open it when the next day begins.",
                code="run_budget_reached",
                shortfall=Shortfall(
                    name=limit.name,
                    ceiling=limit.ceiling,
                    settled=balance.settled,
                    reserved=balance.reserved,
                    asked=1,
                    resets_at_ms=limit.window_end_ms,
                    origin=limit.origin,
                ),
            )


def check_room(campaign: CampaignState, limits: Sequence[LimitLeft]) -> Shortfall | None:
    """`limits`: those of campaign, day and gateway. A shortfall that is given back is one that the policy only warns of."""
    asks = campaign.policy.run.require_room
    shortfall = None if asks == "off" else missing_room(campaign.policy, limits)
    if shortfall is None or asks == "warn":
        return shortfall
    mend = "Open it where more is left" if shortfall.resets_at_ms is None else "Open it when the next day begins"
    raise Declined(
        _problem(campaign), room_words(shortfall), f"{mend}, or let the policy set run.require_room.", code="run_budget_reached", shortfall=shortfall
    )


def room_words(shortfall: Shortfall) -> str:
    left = max(0, shortfall.ceiling - shortfall.settled - shortfall.reserved)
    return f"Of {shortfall.name} = {shortfall.ceiling} only {left} are left, and by its own caps the run may use {shortfall.asked}."


def _problem(campaign: CampaignState) -> str:
    return f"No run opens in campaign {campaign.campaign!r}."
