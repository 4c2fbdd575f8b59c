"""Limits and caps that were resolved before: most calls of a run are held to the same ones as the call before them.

The rule: what is remembered is what would be resolved now: of the same policy object, and before the first of its windows ends.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from gateway.accounting.limit import CallCaps, Limits
from gateway.policy.declaration import GatewayLimits, Policy
from gateway.policy.resolve import NO_ORIGINS, Origins, call_caps, resolve_limits

REMEMBERED_MAX: Final = 4_096
Names = tuple[str, str, str, str]
"""Campaign, run, lane, model."""


@dataclass(frozen=True, slots=True)
class _Resolved:
    policy: Policy
    origins: Origins
    from_ms: int
    until_ms: int
    limits: Limits


class Remembered:
    def __init__(self, gateway_limits: GatewayLimits) -> None:
        self._gateway_limits = gateway_limits
        self._limits: dict[Names, _Resolved] = {}
        self._caps: dict[tuple[str, str], tuple[Policy, CallCaps]] = {}

    def limits(self, policy: Policy, *, campaign: str, run: str, lane: str, model: str, now_ms: int, origins: Origins = NO_ORIGINS) -> Limits:
        names = (campaign, run, lane, model)
        found = self._limits.get(names)
        if found is not None and found.policy is policy and found.origins is origins and found.from_ms <= now_ms < found.until_ms:
            return found.limits
        limits = Limits(resolve_limits(policy, self._gateway_limits, campaign=campaign, run=run, lane=lane, model=model, now_ms=now_ms, origins=origins))
        until_ms = min((limit.window_end_ms for limit in limits if limit.window_end_ms is not None), default=sys.maxsize)
        if len(self._limits) >= REMEMBERED_MAX:
            self._limits.clear()
        self._limits[names] = _Resolved(policy, origins, now_ms, until_ms, limits)
        return limits

    def caps(self, policy: Policy, lane: str, model: str) -> CallCaps:
        found = self._caps.get((lane, model))
        if found is not None and found[0] is policy:
            return found[1]
        caps = call_caps(policy, lane, model)
        if len(self._caps) >= REMEMBERED_MAX:
            self._caps.clear()
        self._caps[lane, model] = policy, caps
        return caps
