"""A preflight: what somebody believes of a run's limits, held against what holds. Pure.

The rule: a belief passes only if it names exactly one thing and states exactly its value. A limit may be named by any ending of its name that fits exactly
one, first among those of the lane at hand, then among all; what fits none or several is a difference, not a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gateway.policy.declared import Declared, dotted
from gateway.policy.nearest import close

Value = int | str
FITS_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    name: str
    """As it was asked."""
    expected: Value
    why: str
    """`differs`, `unknown`, `ambiguous`"""
    found: Value | None = None
    limit: str = ""
    """The whole name, where the one that was asked is an ending."""
    fits: tuple[str, ...] = ()
    """Names that it could mean."""

    @property
    def words(self) -> str:
        match self.why:
            case "differs":
                meant = f" ({self.limit})" if self.limit else ""
                kind = "the text " if isinstance(self.expected, str) and not isinstance(self.found, str) else ""
                return f"{self.name}{meant} is {self.found}, not {kind}{self.expected}"
            case "ambiguous":
                return f"{self.name} fits {len(self.fits)} limits: {', '.join(self.fits[:FITS_SHOWN])}; name one of them"
            case _:
                near = f"; the nearest is {self.fits[0]}" if self.fits else ""
                return f"{self.name} is no limit here{near}"

    def view(self) -> dict[str, object]:
        view: dict[str, object] = {"name": self.name, "expected": self.expected, "why": self.why, "message": self.words}
        if self.found is not None:
            view["found"] = self.found
        if self.limit:
            view["limit"] = self.limit
        if self.fits:
            view["fits"] = list(self.fits[:FITS_SHOWN])
        return view


def differences(expected: Mapping[str, Value], hashes: Mapping[str, str], of_lane: Sequence[Declared], of_all: Sequence[Declared]) -> tuple[Difference, ...]:
    """In the order in which they were asked; empty where all is as expected."""
    found = (_difference(name, value, hashes, of_lane, of_all) for name, value in expected.items())
    return tuple(each for each in found if each is not None)


def _difference(name: str, expected: Value, hashes: Mapping[str, str], of_lane: Sequence[Declared], of_all: Sequence[Declared]) -> Difference | None:
    if name in hashes:
        return None if hashes[name] == expected else Difference(name=name, expected=expected, why="differs", found=hashes[name])
    fitting = fits(name, of_lane) or fits(name, of_all)
    if len(fitting) > 1:
        return Difference(name=name, expected=expected, why="ambiguous", fits=tuple(item.name for item in fitting))
    if not fitting:
        near = nearest(name, of_all)
        return Difference(name=name, expected=expected, why="unknown", fits=(near,) if near else ())
    item = fitting[0]
    if item.ceiling == expected:
        return None
    return Difference(name=name, expected=expected, why="differs", found=item.ceiling, limit="" if item.name == name else item.name)


def fits(name: str, among: Iterable[Declared]) -> tuple[Declared, ...]:
    """The one of that name, else all that end so."""
    every = tuple(among)
    whole = tuple(item for item in every if item.name == name)
    return whole or tuple(item for item in every if name in endings(item))


def nearest(name: str, among: Iterable[Declared]) -> str:
    """The whole name of the limit that was most likely meant; empty where nothing is near."""
    meant = {ending: item.name for item in among for ending in reversed((item.name, *endings(item)))}
    return meant.get(close(name, meant) or "", "")


def endings(item: Declared) -> tuple[str, ...]:
    """`run.foreground.requests` -> `foreground.requests`, `requests`; a model's name is never taken apart."""
    return tuple(item.name[len(dotted(item.path[:at])) + 1 :] for at in range(1, len(item.path)))
