"""Tables as TOML text, enough for gateway.toml and policies: nested tables, text, numbers, booleans, lists of these."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

Tables = Mapping[str, object]


def to_toml(tables: Tables) -> str:
    lines: list[str] = []
    _write(lines, (), tables)
    return "\n".join(lines) + "\n"


def merged(one: Tables, other: Tables) -> dict[str, object]:
    """`other` wins; tables are merged key by key."""
    result = dict(one)
    for name, value in other.items():
        mine = result.get(name)
        result[name] = merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return result


def _write(lines: list[str], path: tuple[str, ...], table: Tables) -> None:
    plain = {name: value for name, value in table.items() if not isinstance(value, Mapping)}
    if path and (plain or not table):
        lines.append(f"[{'.'.join(map(_key, path))}]")
    lines += [f"{_key(name)} = {_value(value)}" for name, value in plain.items()]
    for name, value in table.items():
        if isinstance(value, Mapping):
            _write(lines, (*path, name), value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(str(value))
