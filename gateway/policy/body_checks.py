"""What may stand in `[body]`: fields that a policy can set without saying by the way what belongs elsewhere.

The rule: a cap, a model, the conversation and its tools have places of their own; what the guard would refuse of an agent no policy forces on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import Final

from gateway.dialects.barred import Allowed
from gateway.dialects.dialect import BodyError
from gateway.dialects.guard import guard_fields
from gateway.policy.body_rules import CAP_FIELDS, CONVERSATION_FIELDS, BodyRules
from gateway.policy.declared import Path, dotted
from gateway.policy.diagnose import Report
from gateway.policy.limit_tables import LARGEST

_CAP: Final = "an output ceiling is no field to set here; it belongs in [call] as output_tokens, or in [models.NAME] as default_output_tokens"
_MODEL: Final = "a model is no field to set here; which ones may be used belongs in [models.NAME] and [lanes.NAME]"
_CONVERSATION: Final = "is the agent's own: no policy sets or refuses it; how much of it a call may hold belongs in [call] and [run]"


def check_body(rules: BodyRules, allowed: frozenset[str], report: Report) -> None:
    for table, fields in (("force", rules.force), ("default", rules.default)):
        for name, value in fields.items():
            path = ("body", table, name)
            wrong = _elsewhere(name) or _guarded(name, value, allowed)
            if wrong:
                report.add(path, wrong)
            for below, what in _not_json(value, path):
                report.add(below, what)
    for name in rules.forbid:
        wrong = _elsewhere(name)
        if wrong or not all(name.split(".")):
            report.add(("body", "forbid"), f"{name}: {wrong}" if wrong else f'"{name}" names no field')
    _check_overlaid(rules.default, rules.force, (), report)


def _elsewhere(name: str) -> str:
    if name in CAP_FIELDS:
        return _CAP
    if name == "model":
        return _MODEL
    return f"{name} {_CONVERSATION}" if name in CONVERSATION_FIELDS else ""


def _guarded(name: str, value: object, allowed: frozenset[str]) -> str:
    try:
        guard_fields({name: value}, Allowed(allowed))
    except BodyError:
        return "no call may hold this field with this value, so every call would be refused"
    return ""


def _not_json(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    match value:
        case Mapping():
            for name, below in value.items():
                yield from _not_json(below, (*path, name))
        case list() | tuple():
            for below in value:
                yield from _not_json(below, path)
        case date() | datetime() | time():
            yield path, "a date is no value of JSON; write it as a text"
        case float() if not math.isfinite(value):
            yield path, f"{value} is no number of JSON"
        case int() | float() if abs(value) > LARGEST:
            yield path, f"{value} is too large: at most {LARGEST}"


def _check_overlaid(default: Mapping[str, object], force: Mapping[str, object], above: Path, report: Report) -> None:
    """A default below a forced field is never asked for."""
    for name, value in default.items():
        if name not in force:
            continue
        over = force[name]
        if isinstance(value, Mapping) and isinstance(over, Mapping):
            _check_overlaid(value, over, (*above, name), report)
        else:
            forced = dotted(("body", "force", *above, name))
            report.add(("body", "default", *above, name), f"can never apply: {forced} sets the same field of every call; keep one")
