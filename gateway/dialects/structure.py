"""How a parsed body is built: how many members it has, how deep it goes, and whether it may be written in canonical form as it is."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

from gateway.frozen import frozen

_NUMBERS: Final = frozenset({int, float})
_values_of: Final = dict.values


@frozen
class Structure:
    members: int
    """Object members and list items together."""
    plain: bool
    """No number and no name in it needs a look before it is written in canonical form."""


def structure_of(body: dict[str, Any], deepest: int, most: int) -> Structure | None:
    """None where it is nested more deeply. Stops counting members once they are more than `most`. Level by level: no recursion."""
    dicts: list[dict[str, Any]] = [body]
    lists: list[list[Any]] = []
    names: set[str] = set()
    members = 0
    plain = True
    for _depth in range(deepest):
        values = [*chain.from_iterable(map(_values_of, dicts)), *chain.from_iterable(lists)]
        names.update(*dicts)
        members += len(values)
        if members > most:
            return Structure(members=members, plain=False)
        kinds = set(map(type, values))
        if plain and not kinds.isdisjoint(_NUMBERS):
            plain = all(_is_plain(value) for value in values if value.__class__ in _NUMBERS)
        dicts = [value for value in values if value.__class__ is dict] if dict in kinds else []
        lists = [value for value in values if value.__class__ is list] if list in kinds else []
        if not dicts and not lists:
            return Structure(members=members, plain=plain and "".join(names).isascii())
    return None


def _is_plain(value: object) -> bool:
    kind = value.__class__
    if kind is int:
        return -(2**53) < value < 2**53  # type: ignore[operator]
    return kind is not float or not (value.is_integer() or abs(value) < 1e-4)  # type: ignore[attr-defined,arg-type]
