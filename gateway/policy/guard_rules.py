"""What the policy lets through of all that the guard refuses, and what is dropped without a word to the agent; and whether these two make sense.

The rule: each thing has one name (`dialects/barred.py`); what could not be metered is never allowed, and nothing is dropped without which a call says
something else.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import Final

from pydantic import Field, field_validator

from gateway.dialects.barred import BARRED, THING_OF, fields_of, tool_thing
from gateway.policy.body_rules import BodyRules
from gateway.policy.diagnose import Report
from gateway.policy.nearest import close
from gateway.policy.table import Table

_ALLOW: Final = ("guard", "allow")
_STRIP: Final = ("guard", "strip")


class GuardRules(Table):
    """What the guard lets through, and what it drops."""

    allow: tuple[str, ...] = Field(default=(), description="refused things that agents may send all the same, by their names")
    strip: tuple[str, ...] = Field(default=(), description="refused things that are dropped from what is forwarded instead, by their names")

    @field_validator("allow", "strip")
    @classmethod
    def _a_set(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(value)))

    @cached_property
    def allowed(self) -> frozenset[str]:
        return frozenset(self.allow)

    @cached_property
    def stripped(self) -> frozenset[str]:
        return frozenset(self.strip)

    @cached_property
    def allowed_fields(self) -> frozenset[str]:
        """Of these, no engine's list of fields to remove holds."""
        return fields_of(self.allowed)


def check_guard(rules: GuardRules, body: BodyRules, cache_sharing: str, report: Report) -> None:
    for name in rules.allow:
        if name not in BARRED:
            report.add(_ALLOW, _unknown(name))
        elif BARRED[name].never:
            strip = "" if BARRED[name].stays else f"; guard.strip = [{json.dumps(name)}] drops it"
            report.add(_ALLOW, f"{name} can't be allowed: {BARRED[name].never}{strip}")
        elif name in rules.strip:
            report.add(_ALLOW, f"{name} is also in guard.strip: what is dropped is never let through; keep one")
    for name in rules.strip:
        if name not in BARRED:
            report.add(_STRIP, _unknown(name))
        elif BARRED[name].stays:
            allow = f"guard.allow = [{json.dumps(name)}] lets it through, else such calls are refused"
            report.add(_STRIP, f"{name} can't be stripped: {BARRED[name].stays}; {allow}")
    if "cache_salt" in rules.allow and cache_sharing != "all":
        ours = f'while cache_sharing = "{cache_sharing}" the gateway writes the salt itself; write cache_sharing = "all"'
        report.add(_ALLOW, f"cache_salt can't be allowed: {ours}")
    for name in sorted(fields_of(rules.stripped) & set(body.forbid)):
        report.add(("body", "forbid"), f"{name} is refused here and dropped by guard.strip ({THING_OF[name]}); keep one")


def _unknown(name: str) -> str:
    """With the thing that a field, or a kind of tool, belongs to."""
    thing = THING_OF.get(name) or (tool_thing(name) if tool_thing(name) != "hosted_tools" else close(name, BARRED))
    if thing is not None:
        return f"{json.dumps(name)} is unknown; did you mean {json.dumps(thing)}?"
    return f"{json.dumps(name)} is unknown; it is one of {', '.join(sorted(BARRED))}"
