"""Fields of a request's body that the policy sets, proposes or refuses, and how a body looks afterwards. Pure.

The rule: `force` goes over what the agent sent, that over `default`, tables field by field; what is forbidden is refused, never dropped in silence.
A null asks for nothing: it counts as not sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field, field_validator

from gateway.dialects import DIALECTS
from gateway.dialects.dialect import BodyError
from gateway.policy.table import Table

FORBID: Final = "body.forbid"
CAP_FIELDS: Final = frozenset(name for dialect in DIALECTS.values() for name in dialect.cap_names)
CONVERSATION_FIELDS: Final = frozenset(
    {"messages", "input", "prompt", "system", "instructions", "contents", "stream", "stream_options", "tools", "functions", "n", "n_cmpl", "best_of"}
)
"""The agent's own: what it says, how it wants to be answered, and how often."""


class BodyRules(Table):
    """What stands in the bodies that are forwarded, whatever the agent says."""

    force: dict[str, object] = Field(default={}, description="fields that every forwarded body holds, in place of the agent's")
    default: dict[str, object] = Field(default={}, description="fields that a forwarded body holds where the agent names none")
    forbid: tuple[str, ...] = Field(default=(), description="fields that an agent may not send: the call is refused; a dot goes into a table")

    @field_validator("forbid")
    @classmethod
    def _a_set(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(value)))


def apply(body: Mapping[str, Any], rules: BodyRules) -> Mapping[str, Any]:
    """The body that is read and forwarded; what came in is not changed. Raises BodyError with the field and the policy's key."""
    for name in rules.forbid:
        if _names(body, name.split(".")):
            raise BodyError("not_allowed", f"The field {name} is not allowed by this policy ({FORBID}).", name, FORBID)
    if not rules.force and not rules.default:
        return body
    return over(over(rules.default, body), rules.force)


def over(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """`high` laid over `low`; tables are merged, all else is replaced."""
    merged = dict(low)
    for name, value in high.items():
        below = merged.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[name] = over(below, value)
        elif value is not None or below is None:
            merged[name] = value
    return merged


def _names(body: object, path: list[str]) -> bool:
    for part in path:
        body = body.get(part) if isinstance(body, Mapping) else None
    return body is not None
