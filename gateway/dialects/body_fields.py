"""Reading fields of a request body: each either has the type it must have, is absent, or is a BodyError that names it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gateway.dialects.barred import key_of, mend
from gateway.dialects.dialect import BodyError

LARGEST: Final = 2**53 - 1
UNLIMITED: Final = -1
"""What several servers take for "no cap": the same as naming none."""

_WHOLE: Final[Mapping[int, str]] = {0: "a whole number, not below zero", 1: "a whole number above zero"}
"""Without digits: no refusal holds one."""


def invalid(name: str, what: str) -> BodyError:
    return BodyError("body_invalid", f"The field {name} must be {what}.", name)


def not_allowed(name: str, thing: str, kind: str = "field") -> BodyError:
    """`thing`: what it is, by the name that policies have for it."""
    return BodyError("not_allowed", f"The {kind} {name} is not allowed here: {mend(thing)}.", name, key_of(thing))


def text_of(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise invalid(name, "a text")
    return value


def flag(body: Mapping[str, Any], name: str, where: str = "") -> bool:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise invalid(where + name, "true or false")


def whole_number(body: Mapping[str, Any], name: str, least: int) -> int | None:
    """None where absent or null. What is past all measure is the largest number that JSON carries safely."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise invalid(name, _WHOLE.get(least, "a whole number"))
    return min(value, LARGEST)


def smallest_cap(body: Mapping[str, Any], names: Iterable[str]) -> int | None:
    """The smallest of all aliases; 0 counts as named, -1 as not named."""
    found = [value for name in names if name in body and (value := whole_number(body, name, UNLIMITED)) is not None and value != UNLIMITED]
    return min(found) if found else None


def list_of_objects(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Empty where absent or null."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise invalid(name, "a list of objects")
    return value


def object_of(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(name, "an object")
    return value
