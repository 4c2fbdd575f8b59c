"""The limits of a file as a flat list: one record a number, with the path that is its name.

The rule: a limit's name is its path in TOML, `scope[.lane][.model."NAME"][.window].quantity`; a model's name is always quoted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gateway.accounting.limit import SCOPE_ORDER, Scope
from gateway.accounting.quantity import Quantity

Path = tuple[str, ...]
WINDOWS: Final = ("day",)
PROMPT_TOKENS: Final = "prompt_tokens"
CONTEXT_TOKENS: Final = "context_tokens"
WALL_SECONDS: Final = "wall_seconds"
SPAN_SECONDS: Final = "span_seconds"
ATTEMPTS: Final = "attempts_per_task"
_KEPT: Final = frozenset(str(member) for member in Quantity)
_QUANTITIES: Final = (*(str(member) for member in Quantity), PROMPT_TOKENS, CONTEXT_TOKENS, WALL_SECONDS, SPAN_SECONDS, ATTEMPTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One number of a file. `quantity` is a word: no account keeps what one call may hold, a deadline, or the attempts at a task."""

    scope: Scope
    quantity: str
    ceiling: int
    lane: str = ""
    model: str = ""
    window: str = ""
    timezone: str = ""
    """Of a day; `` where there is no window."""
    name: str = ""
    """Filled in by `flatten`: asked for at every call."""

    @property
    def path(self) -> Path:
        model = ("model", self.model) if self.model else ()
        return tuple(part for part in (str(self.scope), self.lane, *model, self.window, self.quantity) if part)

    @property
    def rank(self) -> tuple[int, int, int, int, int]:
        """Narrow to broad: scope first, then how much of its traffic, then a window before the lifetime."""
        narrowness = -(2 * bool(self.lane) + bool(self.model))
        both = -int(bool(self.lane) and bool(self.model))
        return SCOPE_ORDER[self.scope], both, narrowness, -int(bool(self.window)), _QUANTITIES.index(self.quantity)

    @property
    def kept(self) -> bool:
        """An account adds it up."""
        return self.scope is not Scope.CALL and self.quantity in _KEPT

    def concerns(self, lane: str, model: str) -> bool:
        return self.lane in ("", lane) and self.model in ("", model)


def dotted(path: Path) -> str:
    """A path as one name: `run.model."qwen3.6:35b".output_tokens`."""

    def part(index: int) -> str:
        names_a_model = index > 0 and path[index - 1] in ("model", "models")
        return json.dumps(path[index], ensure_ascii=False) if names_a_model or not _is_bare(path[index]) else path[index]

    return ".".join(part(index) for index in range(len(path)))


def _is_bare(part: str) -> bool:
    return bool(part) and part.isascii() and part.replace("_", "").replace("-", "").isalnum()


def flatten(scopes: Mapping[str, Mapping[str, object]], timezone: str) -> tuple[Declared, ...]:
    """Every number below these scopes, narrow to broad."""
    found = [replace(item, name=dotted(item.path)) for scope, tree in scopes.items() for item in _below(Scope(scope), tree, timezone)]
    return tuple(sorted(found, key=lambda item: (item.rank, item.lane, item.model)))


def _below(scope: Scope, tree: Mapping[str, object], timezone: str, lane: str = "", model: str = "") -> Iterator[Declared]:
    for key, value in tree.items():
        if isinstance(value, int):
            yield Declared(scope=scope, quantity=key, ceiling=value, lane=lane, model=model)
        elif not isinstance(value, Mapping):
            continue
        elif key == "day":
            yield from _of_day(scope, value, timezone, lane, model)
        elif key == "model":
            for name, below in value.items():
                yield from _below(scope, below, timezone, lane, name)
        else:
            yield from _below(scope, value, timezone, key, model)


def _of_day(scope: Scope, day: Mapping[str, object], timezone: str, lane: str, model: str) -> Iterator[Declared]:
    zone = day.get("timezone")
    for key, value in day.items():
        if isinstance(value, int):
            yield Declared(scope=scope, quantity=key, ceiling=value, lane=lane, model=model, window="day", timezone=zone if isinstance(zone, str) else timezone)
