"""All that others ask of campaigns, runs and keys: the room's front.

What changes something is carried out to its end, also where the driver that asked for it has left: nothing is left half opened or half closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TypeVar

from gateway.accounting.commands import Event, Fingerprint, Results
from gateway.errors import GatewayError
from gateway.ledger.state import CampaignStanding, RunStanding
from gateway.policy.declaration import GatewayLimits
from gateway.policy.loading import LoadedPolicy
from gateway.policy.resolve import NO_ORIGINS, Origins, limits_hash
from gateway.runs.beliefs import Difference, Value, differences
from gateway.runs.book import Book
from gateway.runs.budget import budget_view, concerned, hashes
from gateway.runs.campaigns import Campaigns, CampaignState, RunState, add_run, campaign_of, run_of
from gateway.runs.closing import Closing, Receipt
from gateway.runs.deadlines import Deadline, earliest, span_deadline, wall_deadlines
from gateway.runs.declined import Declined
from gateway.runs.in_flight import InFlight
from gateway.runs.keys import Identity, IssuedKey, KeyRing
from gateway.runs.left import LimitLeft, broad_left, left
from gateway.runs.opening import Fingerprints, OpenedRun, Opening
from gateway.runs.plan import UNPINNED, Made, PlannedRun
from gateway.runs.stored_policy import stored_policy

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

CLOSE_S = 60
"""How long closing a campaign waits for the receipts of its runs before it writes its own."""


def _no_fingerprints(_campaign: str, _at_ms: int) -> Sequence[Fingerprint]:
    return ()


class Runs:
    def __init__(
        self,
        book: Book,
        gateway_limits: GatewayLimits,
        *,
        in_flight: InFlight,
        on_change: Callable[[], None] = lambda: None,
        fingerprints: Fingerprints = _no_fingerprints,
        gateway_origins: Origins = NO_ORIGINS,
    ) -> None:
        """`on_change` is called whenever waiting calls must be asked again."""
        self.in_flight = in_flight
        self._book = book
        self._gateway_limits = gateway_limits
        self._gateway_origins = gateway_origins
        self._tasks: set[asyncio.Task[object]] = set()
        self._campaigns = Campaigns()
        self._keys = KeyRing(book, in_flight, on_change)
        self._opening = Opening(book, self._campaigns, self._keys, in_flight, gateway_limits, gateway_origins, fingerprints)
        self._closing = Closing(book, in_flight, on_change, self._background)
        self._load()

    def _load(self) -> None:
        state = self._book.state()
        for campaign in state.campaigns:
            policy, problem = stored_policy(campaign)
            hashed = "" if problem else limits_hash(policy, self._gateway_limits)
            self._campaigns.add(campaign_of(campaign, policy, hashed, self._gateway_origins, problem))
        for run in state.runs:
            add_run(self._campaigns.campaign(run.campaign), run_of(run))
        for key in state.keys:
            self._keys.load(key, *self._campaigns.run(key.campaign, key.run))

    def start(self) -> None:
        """Go on with what was closing when the last process ended. Nothing of it is in flight any more."""
        for campaign in self._campaigns.all():
            if campaign.state is CampaignStanding.CLOSING:
                self._background(self._closing.close_campaign(campaign, close_s=CLOSE_S))
            else:
                for run in campaign.runs.values():
                    if run.state is RunStanding.CLOSING:
                        self._background(self._closing.close_run(campaign, run))

    async def finish(self) -> None:
        """Wait for all that was begun here."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    # what a call asks

    def identify(self, secret: str) -> Identity | None:
        """Whose key it is, revoked and closed ones included: `Identity.live` tells."""
        return self._keys.identify(secret)

    def deadline(self, identity: Identity) -> Deadline | None:
        """The first of its run's wall, its lane's, and the campaign's span: from then on its calls get a final refusal. None: no clock runs."""
        campaign = identity.campaign
        if not campaign.times.walls and campaign.times.span is None:  # asked five times a call
            return None
        return earliest((*self._walls(campaign, identity.run), self.span(campaign)), identity.lane)

    def wall(self, identity: Identity) -> Deadline | None:
        """The first of its run's wall and its lane's: at that moment its calls are cut."""
        return earliest(self._walls(identity.campaign, identity.run), identity.lane)

    def key(self, key_id: str) -> Identity | None:
        return self._keys.find(key_id)

    def receipt_due(self, campaign: str, run: str) -> None:
        """A call of this run was settled. Where the run is closed already, its next receipt is written."""
        state, found = self._campaigns.run(campaign, run)
        if found.state is RunStanding.CLOSED:
            self._background(self._closing.settled(state, found))

    # what is there

    def campaigns(self) -> tuple[CampaignState, ...]:
        return self._campaigns.all()

    def campaign(self, name: str) -> CampaignState:
        """Raises Declined where there is none."""
        return self._campaigns.campaign(name)

    def run(self, campaign: str, run: str) -> RunState:
        """Raises Declined where there is none."""
        return self._campaigns.run(campaign, run)[1]

    def deadlines(self, campaign: str, run: str) -> tuple[Deadline, ...]:
        """Every wall of a run whose clock runs, narrow to broad, and the campaign's span. Raises Declined where there is no such run."""
        state, found = self._campaigns.run(campaign, run)
        span = self.span(state)
        return (*self._walls(state, found), *(() if span is None else (span,)))

    def overdue(self, campaign: str, run: str) -> tuple[Deadline, ...]:
        """The walls that an open run has passed, narrow to broad. It stays open until somebody closes it."""
        state, found = self._campaigns.run(campaign, run)
        now_ms = self._book.now_ms()
        return tuple(wall for wall in self._walls(state, found) if wall.passed(now_ms)) if found.state is RunStanding.OPEN else ()

    def span(self, campaign: CampaignState) -> Deadline | None:
        """When no call and no run of this campaign is admitted any more."""
        return span_deadline(campaign.times, campaign.opened_at_ms, campaign.origins)

    def over(self, campaign: CampaignState) -> bool:
        """Its span has passed."""
        span = self.span(campaign)
        return span is not None and span.passed(self._book.now_ms())

    def _walls(self, campaign: CampaignState, run: RunState) -> tuple[Deadline, ...]:
        if not campaign.times.walls:
            return ()
        return wall_deadlines(campaign.times, opened_ms=run.opened_at_ms, first_call_ms=run.first_call_ms, origins=campaign.origins)

    def keys(self, campaign: str = "", run: str = "") -> tuple[Identity, ...]:
        return self._keys.keys(campaign, run)

    def limits(self, campaign: str, run: str = "", lane: str = "") -> tuple[LimitLeft, ...]:
        """What a run may meet, or without one a campaign, and what is left of it. Raises Declined where there is none."""
        state = self._campaigns.run(campaign, run)[0] if run else self._campaigns.campaign(campaign)
        return left(self._book, state, self._gateway_limits, run, lane)

    def campaign_limits_left(self, campaign: CampaignState) -> tuple[LimitLeft, ...]:
        """Its own limits, whatever the traffic."""
        return broad_left(self._book, campaign.policy.declared, campaign.campaign)

    def gateway_limits_left(self) -> tuple[LimitLeft, ...]:
        return broad_left(self._book, self._gateway_limits.declared)

    # what is asked before and between calls

    def budget(self, campaign: str, run: str, lane: str = "", *, short: bool = False) -> dict[str, object]:
        """Every limit that a run, or one lane of it, can meet, and what is left. `short`: no folders. Raises Declined where there is none."""
        state, found = self._campaigns.run(campaign, run)
        _check_readable(state)
        _check_lane(state, lane)
        return budget_view(
            state,
            found,
            lane,
            limits=left(self._book, state, self._gateway_limits, run, lane),
            declared=concerned(state.policy, self._gateway_limits, lane),
            deadlines=self.deadlines(campaign, run),
            now_ms=self._book.now_ms(),
            short=short,
        )

    async def preflight(self, campaign: str, run: str, expected: Mapping[str, Value], lane: str = "") -> tuple[Difference, ...]:
        """What is not as expected. The first that passes is on record, and opens the run's way where its policy requires one. Raises Declined."""
        state, found = self._campaigns.run(campaign, run)
        _check_lane(state, lane)
        if not expected:
            raise Declined("This preflight expects nothing.", "Nothing can differ from it.", "Name a limit and its value, or the policy.", code="invalid")
        of_lane = concerned(state.policy, self._gateway_limits, lane)
        unlike = differences(expected, hashes(state), of_lane, concerned(state.policy, self._gateway_limits))
        if not unlike:
            await self._whole(self._preflighted(found, expected, lane))
        return unlike

    async def _preflighted(self, run: RunState, expected: Mapping[str, Value], lane: str) -> None:
        async with run.lock:
            if run.preflighted or run.state is not RunStanding.OPEN:
                return
            details: dict[str, object] = {"expect": [[name, value] for name, value in expected.items()], **({"lane": lane} if lane else {})}
            event = Event(campaign=run.campaign, run=run.run, call_id="", name="preflight", at_ms=self._book.now_ms(), details=details)
            await self._book.post(event)
            run.preflighted = True

    # what a driver does

    async def open_campaign(
        self, campaign: str, loaded: LoadedPolicy, planned_runs: int | None = None, plan: Sequence[PlannedRun] = ()
    ) -> tuple[CampaignState, bool]:
        """The campaign, and whether it is new. `plan`: the runs that should happen; their number is then the number planned."""
        return await self._whole(self._opening.open_campaign(campaign, loaded, planned_runs, plan))

    async def halt(self, campaign: str, reason: str = "") -> CampaignState:
        state = self._campaigns.campaign(campaign)
        await self._whole(self._closing.halt(state, reason))
        return state

    async def resume(self, campaign: str, reason: str = "") -> CampaignState:
        state = self._campaigns.campaign(campaign)
        await self._whole(self._closing.resume(state, reason))
        return state

    async def close_campaign(self, campaign: str, *, close_s: int = CLOSE_S, drain_s: int = 0) -> Receipt:
        state = self._campaigns.campaign(campaign)
        return await self._whole(self._closing.close_campaign(state, close_s=close_s, drain_s=drain_s))

    async def open_run(
        self, campaign: str, run: str = "", *, task: str = "", label: str = "", lanes: Sequence[str] = (), idempotency_key: str = "", made: Made = UNPINNED
    ) -> OpenedRun:
        """Checked against the limits on `runs` and posted in one step of the loop."""
        state = self._campaigns.campaign(campaign)
        return await self._whole(self._opening.open_run(state, run, task=task, label=label, lanes=lanes, idempotency_key=idempotency_key, made=made))

    async def close_run(self, campaign: str, run: str, *, results: Results | None = None, drain_s: int = 0, reason: str = "") -> Receipt:
        """Also declares results later: then the next receipt is written."""
        state, found = self._campaigns.run(campaign, run)
        return await self._whole(self._closing.close_run(state, found, results=results, drain_s=drain_s, reason=reason))

    async def issue_key(self, campaign: str, run: str, lane: str) -> IssuedKey:
        return await self._whole(self._issue_key(*self._campaigns.run(campaign, run), lane))

    async def revoke_key(self, key_id: str, reason: str = "") -> Identity:
        """Cuts the calls of this key. Revoking it again does nothing."""
        key = self._keys.key(key_id)
        await self._whole(self._revoke_key(key, reason))
        return key

    async def _issue_key(self, campaign: CampaignState, run: RunState, lane: str) -> IssuedKey:
        problem = f"No key was issued for run {run.run!r}."
        if lane not in campaign.policy.lane_names:
            raise Declined(problem, f"There is no lane {lane!r}.", f"The policy has: {', '.join(campaign.policy.lane_names)}.", code="invalid")
        async with run.lock:
            if run.state is not RunStanding.OPEN or not campaign.serves:
                raise Declined(problem, f"The run is {run.state}, its campaign {campaign.state}.", "Open another run.")
            return await self._keys.issue(campaign, run, lane)

    async def _revoke_key(self, key: Identity, reason: str) -> None:
        async with key.run.lock:
            await self._keys.revoke(key, reason)

    async def _whole(self, work: Coroutine[object, object, _T]) -> _T:
        """To its end, whether or not the one who asked still waits."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    def _background(self, work: Coroutine[object, object, object]) -> None:
        task = asyncio.create_task(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _check_readable(campaign: CampaignState) -> None:
    if campaign.policy_problem:
        raise Declined(
            f"The limits of campaign {campaign.campaign!r} can't be shown.",
            f"Its policy can't be read by this version: {campaign.policy_problem}",
            "Its opening entry holds the policy as it was; the version that opened it can read it.",
            code="invalid",
        )


def _check_lane(campaign: CampaignState, lane: str) -> None:
    if lane and lane not in campaign.policy.lane_names:
        raise Declined(f"There is no lane {lane!r}.", f"The policy has: {', '.join(campaign.policy.lane_names)}.", "Name one of these.", code="invalid")


async def _logged(work: Coroutine[object, object, object]) -> None:
    try:
        await work
    except GatewayError:
        _log.exception("what was left to be written of a closing failed; it is tried again at the next start")
