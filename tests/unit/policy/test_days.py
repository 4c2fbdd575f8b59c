from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.days import day_of, zone, zone_names

HOUR_MS = 3_600_000


def at(text: str, timezone: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(timezone)).timestamp()) * 1000


@pytest.mark.parametrize(
    ("moment", "timezone", "hours", "next_midnight_utc"),
    [
        ("2026-03-29T12:00", "Europe/Berlin", 23, "2026-03-29T22:00"),
        ("2026-10-25T12:00", "Europe/Berlin", 25, "2026-10-25T23:00"),
        ("2026-10-24T12:00", "Europe/Berlin", 24, "2026-10-24T22:00"),
        ("2026-10-03T12:00", "Asia/Shanghai", 24, "2026-10-03T16:00"),
        ("2026-04-05T12:00", "Australia/Lord_Howe", 24.5, "2026-04-05T13:30"),
    ],
)
def test_a_day_is_as_long_as_it_is_there_and_ends_at_local_midnight(moment: str, timezone: str, hours: float, next_midnight_utc: str) -> None:
    day = day_of(timezone, at(moment, timezone))
    assert day.name == f"day {moment[:10]} {timezone}"
    assert day.end_ms - day.start_ms == hours * HOUR_MS
    assert day.end_ms == at(next_midnight_utc, "UTC")


def test_where_midnight_is_skipped_the_day_begins_with_the_leap() -> None:
    """Santiago goes from 2026-09-05 24:00 straight to 01:00."""
    day = day_of("America/Santiago", at("2026-09-06T12:00", "America/Santiago"))
    assert day.end_ms - day.start_ms == 23 * HOUR_MS
    assert day.start_ms == at("2026-09-06T04:00", "UTC")


def test_the_last_millisecond_belongs_to_the_day_and_the_next_one_does_not() -> None:
    day = day_of("Europe/Berlin", at("2026-10-25T02:30", "Europe/Berlin"))
    assert day_of("Europe/Berlin", day.end_ms - 1) == day
    assert day_of("Europe/Berlin", day.start_ms) == day
    assert day_of("Europe/Berlin", day.end_ms).name == "day 2026-10-26 Europe/Berlin"
    assert day_of("Europe/Berlin", day.start_ms - 1).name == "day 2026-10-24 Europe/Berlin"


@given(st.integers(at("2000-01-01T00:00", "UTC"), at("2037-12-31T00:00", "UTC")), st.sampled_from(sorted(zone_names())))
@settings(max_examples=300, deadline=None)
def test_every_moment_lies_in_its_day_and_days_follow_without_a_gap(moment: int, timezone: str) -> None:
    day = day_of(timezone, moment)
    assert day.start_ms <= moment < day.end_ms
    following = day_of(timezone, day.end_ms)
    assert following.start_ms == day.end_ms
    assert following.name > day.name
    there = datetime.fromtimestamp(moment // 1000, zone(timezone))
    assert day.name == f"day {there.date().isoformat()} {timezone}"
    assert timedelta(hours=20) <= timedelta(milliseconds=day.end_ms - day.start_ms) <= timedelta(hours=28)


def test_an_unknown_zone_is_none() -> None:
    with pytest.raises(KeyError):
        zone("../../etc/passwd")
