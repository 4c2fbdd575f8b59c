"""Calendar days in a named zone: which day a moment belongs to and when that day ends.

The rule: zones come from the tzdata package, so that every machine has the same days. A day may have 23 or 25 hours.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]

TZDATA_VERSION: Final[str] = tzdata.IANA_VERSION
"""`2026b`: which edition of the zones this process has."""


@dataclass(frozen=True, slots=True)
class Day:
    name: str
    """`day 2026-10-03 Asia/Shanghai`: the window as it stands in an account's name."""
    start_ms: int
    end_ms: int


@cache
def zone_names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text("utf-8").split())


@cache
def zone(name: str) -> ZoneInfo:
    """Raises KeyError where there is no such zone."""
    if name not in zone_names():
        raise KeyError(name)
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


_latest: dict[str, Day] = {}
"""The day last asked for in each zone: nearly every call asks for the same one."""


def day_of(timezone: str, at_ms: int) -> Day:
    """The calendar day that holds this moment."""
    day = _latest.get(timezone)
    if day is None or not day.start_ms <= at_ms < day.end_ms:
        day = _latest[timezone] = _day_of(timezone, at_ms)
    return day


def _day_of(timezone: str, at_ms: int) -> Day:
    local = zone(timezone)
    date_there = (datetime.fromtimestamp(at_ms // 1000, UTC)).astimezone(local).date()
    return Day(f"day {date_there.isoformat()} {timezone}", _first_ms(local, date_there), _first_ms(local, date_there + timedelta(days=1)))


def _first_ms(local: ZoneInfo, day: date) -> int:
    """The first moment of a day. Where midnight is skipped, that is the moment of the leap; where it comes twice, the first."""
    midnight = datetime.combine(day, time.min, tzinfo=local)
    return int(midnight.timestamp()) * 1000
