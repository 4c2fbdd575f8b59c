"""The budget of a run as its agent, its driver and a person see it: every limit that holds, what is left of it, and where it was set.

The rule: it tells what is so at this moment and changes nothing. An agent is told the name of a file and never its folder.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from gateway.accounting.limit import Scope
from gateway.policy.declaration import GatewayLimits, Policy
from gateway.policy.declared import SPAN_SECONDS, WALL_SECONDS, Declared
from gateway.policy.resolve import Origins
from gateway.runs.campaigns import CampaignState, RunState
from gateway.runs.deadlines import Deadline
from gateway.runs.left import LimitLeft

View = dict[str, object]


def concerned(policy: Policy, gateway_limits: GatewayLimits, lane: str = "") -> tuple[Declared, ...]:
    """Every number of both files that traffic of a lane (or of any lane) can meet, narrow to broad."""
    models = policy.models_of(lane) if lane else tuple(policy.models)
    every = (*policy.declared, *gateway_limits.declared)
    return tuple(item for item in every if (not lane or item.lane in ("", lane)) and (not item.model or item.model in models))


def budget_view(
    campaign: CampaignState,
    run: RunState,
    lane: str,
    *,
    limits: Sequence[LimitLeft],
    declared: Iterable[Declared],
    deadlines: Sequence[Deadline],
    now_ms: int,
    short: bool,
) -> View:
    """`short`: origins without their folders."""
    origins = {name: _short(origin) for name, origin in campaign.origins.items()} if short else campaign.origins
    view: View = {
        "campaign": campaign.campaign,
        "run": run.run,
        "state": run.state,
        "policy": campaign.policy_name,
        "policy_hash": campaign.policy_hash,
        "limits_hash": campaign.limits_hash,
        "at_ms": now_ms,
        "preflight": {"required": campaign.policy.agent.require_preflight, "passed": run.preflighted},
        "limits": [limit_left_view(found, origins) for found in limits],
        "call": [_cap(item, origins) for item in declared if item.scope is Scope.CALL],
        "deadlines": [_deadline(item, deadlines, now_ms, origins) for item in declared if item.quantity in (WALL_SECONDS, SPAN_SECONDS)],
    }
    if lane:
        view["lane"] = lane
    if run.limits_hash not in ("", campaign.limits_hash):
        view["limits_hash_at_opening"] = run.limits_hash
    return view


def limit_left_view(found: LimitLeft, origins: Origins | None = None) -> View:
    limit = found.limit
    view: View = {
        "name": limit.name,
        "ceiling": limit.ceiling,
        "settled": found.balance.settled,
        "reserved": found.balance.reserved,
        "left": found.left,
    }
    if limit.window_end_ms is not None:
        view |= {"resets_at": utc(limit.window_end_ms), "resets_at_ms": limit.window_end_ms}
    return _with_origin(view, limit.origin if origins is None else origins.get(limit.name, ""))


def utc(at_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms / 1000))


def _cap(item: Declared, origins: Origins) -> View:
    return _with_origin({"name": item.name, "ceiling": item.ceiling}, origins.get(item.name, ""))


def _deadline(item: Declared, deadlines: Sequence[Deadline], now_ms: int, origins: Origins) -> View:
    """Without times where its clock has not begun."""
    view: View = {"name": item.name, "ceiling": item.ceiling}
    found = next((deadline for deadline in deadlines if deadline.limit_name == item.name), None)
    if found is not None:
        left_s = max(0, found.at_ms - now_ms) // 1000
        view |= {"left": left_s, "started_at_ms": found.started_ms, "ends_at": utc(found.at_ms), "ends_at_ms": found.at_ms}
    return _with_origin(view, origins.get(item.name, ""))


def _with_origin(view: View, origin: str) -> View:
    return {**view, "origin": origin} if origin else view


def _short(origin: str) -> str:
    """`/folder/pilot.toml:16` -> `pilot.toml:16`"""
    return PurePath(origin).name


def hashes(campaign: CampaignState) -> Mapping[str, str]:
    """What a preflight may expect beside limits."""
    return {"policy": campaign.policy_hash, "limits": campaign.limits_hash}
