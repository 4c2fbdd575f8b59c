"""Words for a value that does not fit its key, with what to write instead."""

from __future__ import annotations

import json
import re
from typing import Final

from pydantic_core import ErrorDetails

from gateway.policy.declared import Path
from gateway.policy.nearest import close

_WITH_UNIT: Final = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")
_FACTORS: Final = {"k": 10**3, "m": 10**6, "g": 10**9, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_SECONDS: Final = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "ms": 0}
_UNITS: Final = (("_seconds", "seconds"), ("_s", "seconds"), ("_bytes", "bytes"), ("_tokens", "tokens"))


def what_is_wrong(error: ErrorDetails, path: Path) -> str:
    value, context = error["input"], error.get("ctx", {})
    match error["type"]:
        case "missing":
            return "missing: this key has no default"
        case "int_type" | "int_parsing" | "int_from_float":
            return f"{_shown(value)} is {_kind(value)}; write a whole number{_of(path)}{_instead(value, path)}"
        case "tuple_type":
            return f"{_shown(value)} is {_kind(value)}; write a list: {path[-1]} = [{_quoted(value)}]"
        case "string_type" | "path_type":
            return f"{_shown(value)} is {_kind(value)}; write a text: {path[-1]} = {_quoted(value)}"
        case "bool_type":
            return f"{_shown(value)} is {_kind(value)}; write true or false"
        case "float_type":
            return f"{_shown(value)} is {_kind(value)}; write a number, e.g. {path[-1]} = 0.9"
        case "greater_than_equal":
            return f"{_shown(value)} is too small: at least {context['ge']}{_unit(path)}"
        case "less_than_equal":
            return f"{_shown(value)} is too large: at most {_limit(context['le'])}{_unit(path)}{_as_part(value, context['le'], path)}"
        case "literal_error":
            allowed = re.findall(r"'([^']*)'", str(context["expected"]))
            return unknown_word(value, allowed)
        case "too_short":
            return "needs at least one entry"
        case "model_type" | "dict_type" | "model_attributes_type":
            return f"must be a table, not {_kind(value)}"
        case "value_error":
            return str(context["error"])
        case _:
            return f"{_kind(value)} does not fit: {error['msg'][0].lower()}{error['msg'][1:]}"


def unknown_word(value: object, allowed: list[str]) -> str:
    likely = close(value, allowed) if isinstance(value, str) else None
    meant = f"; did you mean {json.dumps(likely)}?" if likely else ""
    return f"{_shown(value)} is unknown; it is one of {', '.join(json.dumps(word) for word in allowed)}{meant}"


def _quoted(value: object) -> str:
    """As it would stand in quotes; of a list or a table nothing can be told."""
    return '"…"' if isinstance(value, list | dict) else _shown(value if isinstance(value, str) else str(value))


def _limit(largest: object) -> str:
    return f"{largest:g}" if isinstance(largest, float) else str(largest)


def _as_part(value: object, largest: object, path: Path) -> str:
    """`90` where a part of one belongs is 90 %."""
    return f"; write {path[-1]} = {value / 100:g}" if isinstance(largest, float) and isinstance(value, int) and 1 < value <= 100 else ""


def _shown(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)[:80]
    except TypeError:
        return str(value)[:80]


def _kind(value: object) -> str:
    match value:
        case bool():
            return "a truth value"
        case str():
            return "a text"
        case float():
            return "a fraction"
        case int():
            return "a number"
        case list() | tuple():
            return "a list"
        case dict():
            return "a table"
        case _:
            return f"a {type(value).__name__}"


def _of(path: Path) -> str:
    return f" of{_unit(path)}" if _unit(path) else ""


def _unit(path: Path) -> str:
    return next((f" {unit}" for ending, unit in _UNITS if path and path[-1].endswith(ending)), "")


def _instead(value: object, path: Path) -> str:
    """`"8k"` -> `: output_tokens = 8000`; nothing where it can't be told."""
    if isinstance(value, float) and value.is_integer():
        return f": {path[-1]} = {int(value)}"
    found = _WITH_UNIT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return ""
    factor = (_SECONDS if _unit(path) == " seconds" else _FACTORS).get(found[2].lower(), 1 if not found[2] else 0)
    amount = int(float(found[1].replace("_", "")) * factor)
    return f": {path[-1]} = {amount}" if amount else ""
