"""Opening campaigns and runs. A run is checked against the limits on `runs` and posted in one step of the loop, so they are exact under any concurrency.

A driver whose reply was lost asks again with the same idempotency key and gets the same run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gateway.accounting.commands import Event, Fingerprint, OpenCampaign, OpenRun
from gateway.accounting.limit import Shortfall
from gateway.errors import GatewayError
from gateway.ids import NAME, new_run_id
from gateway.ledger.state import RunStanding
from gateway.policy.days import TZDATA_VERSION
from gateway.policy.declaration import GatewayLimits
from gateway.policy.loading import LoadedPolicy
from gateway.policy.resolve import Origins, limits_hash, run_limits
from gateway.runs.book import Book
from gateway.runs.campaigns import Campaigns, CampaignState, RunState, add_run, remove_run
from gateway.runs.declined import Declined
from gateway.runs.in_flight import InFlight
from gateway.runs.keys import KeyRing
from gateway.runs.left import left
from gateway.runs.may_open import check_attempts, check_room, check_runs, check_span, room_words
from gateway.runs.plan import UNPINNED, Made, PlannedRun, check_made, check_text, plan_details

Fingerprints = Callable[[str, int], Sequence[Fingerprint]]
"""(campaign, time) -> what its engines say that they are, for its chain when a run opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRun:
    campaign: str
    run: str
    keys: Mapping[str, str | None]
    """Lane -> secret; None where it is not shown (again)."""
    key_ids: Mapping[str, str]
    created: bool
    note: str = ""


class Opening:
    def __init__(
        self,
        book: Book,
        campaigns: Campaigns,
        keys: KeyRing,
        in_flight: InFlight,
        gateway_limits: GatewayLimits,
        gateway_origins: Origins,
        fingerprints: Fingerprints,
    ) -> None:
        self._book = book
        self._campaigns = campaigns
        self._keys = keys
        self._in_flight = in_flight
        self._gateway_limits = gateway_limits
        self._gateway_origins = gateway_origins
        self._fingerprints = fingerprints

    async def open_campaign(self, name: str, loaded: LoadedPolicy, planned_runs: int | None, plan: Sequence[PlannedRun] = ()) -> tuple[CampaignState, bool]:
        """The campaign, and whether it is new. Opening it again with the same policy gives the one that stands."""
        _check_name("campaign", name)
        planned = plan_details(plan)
        planned_runs = len(plan) or planned_runs
        standing = self._campaigns.find(name)
        if standing is not None:
            async with standing.lock:
                pass  # it may be opening at this moment
            standing = self._campaigns.find(name)
        if standing is not None:
            return _same_campaign(standing, loaded, planned_runs, plan), False
        self._book.admissible()
        at_ms = self._book.now_ms()
        campaign = CampaignState(
            campaign=name,
            opened_at_ms=at_ms,
            policy=loaded.policy,
            policy_name=loaded.name,
            policy_hash=loaded.hash,
            limits_hash=limits_hash(loaded.policy, self._gateway_limits),
            origins={**self._gateway_origins, **loaded.origins},
            planned_runs=planned_runs,
            plan=tuple(plan),
        )
        posted = self._book.post(
            OpenCampaign(
                campaign=name,
                at_ms=at_ms,
                policy_name=loaded.name,
                policy=loaded.canonical,
                policy_hash=loaded.hash,
                planned_runs=planned_runs,
                details={"tzdata": TZDATA_VERSION, "origins": [[name, _plain(origin)] for name, origin in loaded.origins.items()], **planned},
            )
        )
        self._campaigns.add(campaign)
        async with campaign.lock:
            try:
                await posted
            except GatewayError:
                self._campaigns.remove(campaign)
                raise
        return campaign, True

    async def open_run(
        self, campaign: CampaignState, run: str, *, task: str, label: str, lanes: Sequence[str], idempotency_key: str, made: Made = UNPINNED
    ) -> OpenedRun:
        names = _lanes(campaign, lanes)
        _check_texts(run, task=task, label=label, idempotency_key=idempotency_key)
        check_made(made)
        arguments = {"run": run, "task": task, "label": label, "lanes": sorted(names), **made.details()}
        arguments_hash = hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()
        standing = _standing(campaign, run, idempotency_key, arguments_hash)
        if standing is not None:
            return await self._again(campaign, standing, names)
        if campaign.ending:
            raise Declined(f"No run opens in campaign {campaign.campaign!r}.", "It is closing or closed.", "Open another campaign.")
        self._book.admissible()
        at_ms = self._book.now_ms()
        state = RunState(
            campaign=campaign.campaign,
            run=run or new_run_id(),
            opened_at_ms=at_ms,
            label=label,
            task=task,
            made=made,
            idempotency_key=idempotency_key,
            arguments_hash=arguments_hash,
            limits_hash=campaign.limits_hash,
        )
        return await self._post(campaign, state, names, made)

    async def _post(self, campaign: CampaignState, run: RunState, lanes: tuple[str, ...], made: Made) -> OpenedRun:
        """From the check of the limits to the posting nothing is waited for."""
        check_span(campaign, run.opened_at_ms)
        check_attempts(campaign, run.task)
        limits = run_limits(campaign.policy, self._gateway_limits, campaign.campaign, run.opened_at_ms, campaign.origins)
        check_runs(self._book, campaign, limits)
        shortfall = check_room(campaign, left(self._book, campaign, self._gateway_limits))
        opening = self._book.post(
            OpenRun(
                campaign=run.campaign,
                run=run.run,
                at_ms=run.opened_at_ms,
                label=run.label,
                task=run.task,
                idempotency_key=run.idempotency_key,
                arguments_hash=run.arguments_hash,
                policy_hash=campaign.policy_hash,
                limits_hash=run.limits_hash,
                accounts=tuple(limit.account for limit in limits),
                details={**_wall_details(campaign, run.opened_at_ms), **made.details()},
            )
        )
        add_run(campaign, run)
        async with run.lock:
            try:
                await opening
            except GatewayError:
                remove_run(campaign, run)
                raise
            for fingerprint in self._fingerprints(run.campaign, run.opened_at_ms):
                await self._book.post(fingerprint)
            if shortfall is not None:
                await self._book.post(_warning(run, shortfall, self._book.now_ms()))
            note = "" if shortfall is None else room_words(shortfall)
            return await self._give_keys(campaign, run, lanes, note, created=True)

    async def _again(self, campaign: CampaignState, run: RunState, lanes: tuple[str, ...]) -> OpenedRun:
        """The same opening once more: its reply was lost, and the keys with it."""
        async with run.lock:
            if campaign.runs.get(run.run) is not run:
                raise Declined(f"Run {run.run!r} was not opened.", "The opening that came before this one failed.", "Ask again.")
            hidden: dict[str, str | None] = dict.fromkeys(lanes)
            note = ""
            if run.state is not RunStanding.OPEN or campaign.ending:
                note = f"The run is {run.state if run.state is not RunStanding.OPEN else 'in a closing campaign'}: no keys are given."
            elif run.calls_before or self._in_flight.entered(run.campaign, run.run):
                note = "Calls were made with the keys of the first reply: they stand and are not shown again. `gateway key issue` makes others."
            if note:
                return OpenedRun(campaign=run.campaign, run=run.run, keys=hidden, key_ids={}, created=False, note=note)
            for key in self._keys.keys(run.campaign, run.run):
                await self._keys.revoke(key, "the reply that carried it was lost")
            return await self._give_keys(campaign, run, lanes, "The run was open already; the keys of the first reply are revoked.", created=False)

    async def _give_keys(self, campaign: CampaignState, run: RunState, lanes: tuple[str, ...], note: str, *, created: bool) -> OpenedRun:
        issued = [await self._keys.issue(campaign, run, lane) for lane in lanes]
        return OpenedRun(
            campaign=run.campaign,
            run=run.run,
            keys={key.lane: key.secret for key in issued},
            key_ids={key.lane: key.key_id for key in issued},
            created=created,
            note=note,
        )


def _wall_details(campaign: CampaignState, opened_at_ms: int) -> Mapping[str, object]:
    """What a receipt needs to tell whether the run went past its deadline."""
    wall = campaign.times.run_wall
    if wall is None:
        return {}
    if campaign.times.from_opening:
        return {"wall_seconds": wall.ceiling, "deadline_ms": opened_at_ms + wall.ceiling * 1000}
    return {"wall_seconds": wall.ceiling}


def _plain(origin: str) -> str:
    """A path may hold bytes that are no Unicode: these stand escaped in the ledger."""
    return origin.encode("utf-8", "backslashreplace").decode()


def _warning(run: RunState, shortfall: Shortfall, at_ms: int) -> Event:
    numbers = {"limit": shortfall.name, "ceiling": shortfall.ceiling, "settled": shortfall.settled, "reserved": shortfall.reserved, "asked": shortfall.asked}
    return Event(campaign=run.campaign, run=run.run, call_id="", name="no_room", at_ms=at_ms, details=numbers)


def _same_campaign(standing: CampaignState, loaded: LoadedPolicy, planned_runs: int | None, plan: Sequence[PlannedRun]) -> CampaignState:
    problem = f"Campaign {standing.campaign!r} is not opened again."
    if standing.policy_hash != loaded.hash:
        raise Declined(
            problem,
            f"It stands with policy {standing.policy_hash[:12]}, this is {loaded.hash[:12]}.",
            "Another policy is another campaign: give it another name.",
        )
    if standing.planned_runs != planned_runs or standing.plan != tuple(plan):
        raise Declined(problem, "It stands with another plan, or another number of planned runs.", "Ask with the same plan, or open another campaign.")
    if standing.ending:
        raise Declined(problem, f"It is {standing.state}.", "Open another campaign.")
    return standing


def _standing(campaign: CampaignState, run: str, idempotency_key: str, arguments_hash: str) -> RunState | None:
    standing = campaign.by_idempotency_key.get(idempotency_key) if idempotency_key else None
    if standing is not None:
        if standing.arguments_hash != arguments_hash:
            raise Declined(
                f"Run {standing.run!r} is not opened again.",
                f"Idempotency key {idempotency_key!r} stands with other arguments.",
                "Ask with the same arguments, or with another idempotency key for another run.",
            )
        return standing
    if run in campaign.runs:
        raise Declined(
            f"There is a run {run!r} in campaign {campaign.campaign!r} already.",
            "It was opened without this idempotency key.",
            "Name another run. Who must be able to ask again gives an idempotency key.",
        )
    return None


def _lanes(campaign: CampaignState, lanes: Sequence[str]) -> tuple[str, ...]:
    """Asked for, or all that the policy declares."""
    declared = campaign.policy.lane_names
    unknown = [lane for lane in lanes if lane not in declared]
    if unknown:
        raise Declined(f"There is no lane {unknown[0]!r}.", f"The policy has: {', '.join(declared)}.", "Ask for these.", code="invalid")
    return tuple(dict.fromkeys(lanes)) or declared


def _check_name(what: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise Declined(
            f"{name!r} is no name of a {what}.", "Names are 1 to 64 of a-z 0-9 . _ - and begin with a letter or digit.", "Choose another.", code="invalid"
        )


def _check_texts(run: str, **texts: str) -> None:
    if run:
        _check_name("run", run)
    for what, text in texts.items():
        check_text(what.replace("_", " "), text)
